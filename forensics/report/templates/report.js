"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  document.documentElement.classList.add("script");

  const wall = document.getElementById("wall");
  const reveal = () => {
    const aim = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (aim && wall && wall.contains(aim)) { wall.open = true; aim.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();

  const links = all(".browser .list a");
  const runs = all(".browser .run");
  const show = (place, focus) => {
    runs.forEach((run, i) => { run.hidden = i !== place; });
    links.forEach((link, i) => {
      if (i === place) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
      link.tabIndex = i === place ? 0 : -1;
    });
    if (focus) { links[place].focus(); links[place].scrollIntoView({ block: "nearest", inline: "nearest" }); }
  };
  const fromAddress = () => runs.findIndex((run) => "#" + run.id === location.hash);
  links.forEach((link, i) => {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      show(i, false);
      if (matchMedia("(max-width: 860px)").matches) runs[i].scrollIntoView();
    });
    link.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      const to = event.key === "Home" ? 0 : event.key === "End" ? links.length - 1 : i + (step || 0);
      if (to !== i && links[to]) { event.preventDefault(); show(to, true); }
    });
  });
  all(".span-link a").forEach((link) => link.addEventListener("click", () => {
    const place = runs.findIndex((run) => "#" + run.id === link.getAttribute("href"));
    if (place >= 0) show(place, false);
  }));
  addEventListener("hashchange", () => {
    const place = fromAddress();
    if (place >= 0) { show(place, false); runs[place].scrollIntoView(); runs[place].focus({ preventScroll: true }); }
  });
  if (runs.length) show(Math.max(fromAddress(), 0), false);

  runs.forEach((run) => {
    const tabs = all("[data-twin]", run);
    const twins = all(".twin", run);
    const turn = (place) => {
      tabs.forEach((tab, i) => tab.setAttribute("aria-pressed", String(i === place)));
      twins.forEach((twin, i) => { twin.hidden = i !== place; });
    };
    tabs.forEach((tab, i) => { tab.hidden = false; tab.addEventListener("click", () => turn(i)); });
    if (tabs.length) turn(0);
  });

  const filters = document.querySelector(".filters");
  if (filters) {
    const choices = all("select", filters);
    const findings = all(".finding");
    const sift = () => {
      findings.forEach((one) => { one.hidden = choices.some((c) => c.value && one.dataset[c.dataset.by] !== c.value); });
      filters.querySelector(".count").textContent = findings.filter((one) => !one.hidden).length + " shown";
    };
    filters.hidden = false;
    filters.addEventListener("change", sift);
    filters.addEventListener("submit", (event) => event.preventDefault());
    sift();
  }

  const details = all("#evidence details");
  const expand = document.querySelector("[data-expand]");
  if (expand && details.length) {
    expand.hidden = false;
    expand.addEventListener("click", () => {
      const open = details.some((one) => !one.open);
      details.forEach((one) => { one.open = open; });
      expand.textContent = open ? "Close all details" : "Open all details";
    });
  }
  addEventListener("beforeprint", () => all(".rest, #wall").forEach((one) => { one.open = true; }));
})();
