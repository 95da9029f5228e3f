"use strict";
// Names of landmarks and of the search, and keyboard scrolling of wide tables.
const name_landmarks = () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((nav, index) => nav.setAttribute("aria-label", `Code ${index + 1}`));
  document.querySelectorAll(".md-typeset__scrollwrap, pre.docstring, .md-typeset pre > code").forEach((wide) => wide.setAttribute("tabindex", "0"));
};
new MutationObserver(name_landmarks).observe(document.body, { childList: true, subtree: true });
name_landmarks();
