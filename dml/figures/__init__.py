"""Figures by matplotlib, written as SVG and PNG."""
