"""All-reduces by exchanges of full buffers; see docs/allreduce.md."""
