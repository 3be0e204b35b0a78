"""The style sheet of HTML pages, for light and dark screens and for paper."""

CSS = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --panel: #f6f7f9; --ink: #1c2128; --soft: #59636e; --line: #dfe3e8;
  --grid: #e8ebef;
  --good: #1a7f37; --bad: #c4261d; --busy: #0b63b8; --warn: #8f5a00;
  --c0: #3b72b8; --c1: #b7641b; --c2: #16837a; --c3: #7c58b4;
  --c4: #6c7a17; --c5: #b14a80; --c6: #5b6b7c; --c7: #8b5e46;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14181d; --panel: #1c2229; --ink: #e4e8ed; --soft: #9aa5b1; --line: #323a43;
    --grid: #272e36;
    --good: #4cc263; --bad: #ff7b72; --busy: #6cb2ff; --warn: #e0a83a;
    --c0: #6ea3e0; --c1: #e09a58; --c2: #4fb5aa; --c3: #b093e0;
    --c4: #a9b750; --c5: #e082b0; --c6: #96a7b8; --c7: #c79a80;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2.5rem 2rem 3rem; max-width: 76rem; background: var(--paper);
  color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: break-word;
}
code, pre {
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace;
  font-size: .9em;
}
a { color: var(--busy); }
h1 { font-size: 1.5rem; font-weight: 600; line-height: 1.25; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 1.05rem; font-weight: 600; margin: 2.75rem 0 .75rem; }
h3 { font-size: .95rem; font-weight: 600; margin: 0; }
p { margin: 0 0 .75rem; }
.note { color: var(--soft); font-size: .8rem; max-width: 62rem; margin: .75rem 0 0; }
.note.above { margin: 1.25rem 0 .75rem; }
.title { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem .9rem; }
.lead { margin: .5rem 0 0; color: var(--soft); }
.badge {
  display: inline-block; padding: .1rem .6rem; border: 1px solid; border-radius: 1rem;
  font-size: .75rem; font-weight: 600; letter-spacing: .03em; white-space: nowrap;
}
.good { color: var(--good); } .bad { color: var(--bad); } .busy { color: var(--busy); }
.warn { color: var(--warn); }
.dim { color: var(--soft); }
dl.facts {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: .9rem 1.5rem;
  margin: 1.5rem 0 0; padding: 1.1rem 1.25rem; background: var(--panel); border-radius: .5rem;
}
.facts div { min-width: 0; }
.facts .wide { grid-column: span 2; }
.facts dt { color: var(--soft); font-size: .78rem; }
.facts dd { margin: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td {
  padding: .42rem .55rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line);
}
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--soft); font-weight: 500; font-size: .78rem; vertical-align: bottom; }
thead th.group { border-bottom: 0; text-align: center; padding-bottom: 0; }
thead tr + tr th:first-child { padding-left: .55rem; }
thead tr + tr th:last-child { padding-right: .55rem; }
thead tr + tr th { padding-top: .1rem; }
tbody th { font-weight: 500; }
tfoot th, tfoot td { border-bottom: 0; font-weight: 600; }
table.short { width: auto; min-width: 40%; } .short th, .short td { padding-right: 2rem; }
.left { text-align: left; }
.wrap { white-space: normal; }
.state { font-size: .75rem; font-weight: 600; letter-spacing: .02em; }
.swatch {
  display: inline-block; width: .65em; height: .65em; border-radius: 2px; margin-right: .55em;
}
.c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); } .c3 { --c: var(--c3); }
.c4 { --c: var(--c4); } .c5 { --c: var(--c5); } .c6 { --c: var(--c6); } .c7 { --c: var(--c7); }
.swatch { background: var(--c); }
svg.defs { position: absolute; }
svg.chart { display: block; width: 100%; min-width: 46rem; height: auto; }
svg.narrow { display: none; min-width: 0; max-width: 34rem; overflow: visible; }
.chart text { font-size: 12px; fill: var(--soft); }
.chart .name { text-anchor: end; fill: var(--ink); }
.chart .peak { text-anchor: end; }
.chart .above { text-anchor: start; font-weight: 600; }
.chart .small { font-size: 11px; }
.chart .tick { text-anchor: middle; font-size: 11px; }
.chart .grid { stroke: var(--grid); }
.chart .base { stroke: var(--line); }
.now { stroke: var(--busy); stroke-dasharray: 3 3; }
.bars rect, .area { fill: var(--c); }
.dot { fill: var(--c); fill-opacity: .8; }
.bars .failed, .failed { fill: url(#hatch); stroke: var(--bad); stroke-width: 1; fill-opacity: 1; }
.mark { fill: var(--bad); stroke: var(--bad); }
.mark.again { fill: var(--paper); }
.lanes .track { fill: var(--grid); }
.lanes path, .lanes rect { fill: var(--c); }
.lanes .l1 { fill-opacity: .4; } .lanes .l2 { fill-opacity: .6; } .lanes .l3 { fill-opacity: .8; }
.median { stroke: var(--ink); stroke-width: 1.5; }
#hatch rect { fill: var(--paper); } #hatch path { stroke: var(--bad); stroke-width: 1.6; }
ul.legend {
  list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: .75rem 0 0;
  padding: 0;
}
.legend li { color: var(--soft); font-size: .8rem; }
.legend svg { vertical-align: -.1em; margin-right: .45em; overflow: visible; }
.panels {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .75rem 1.5rem;
  margin: .5rem 0 1rem;
}
.panels figure {
  display: flex; flex-direction: column; justify-content: flex-end; margin: 0; min-width: 0;
  max-width: 40rem;
}
.panels figcaption { color: var(--soft); font-size: .78rem; margin-bottom: .25rem; }
.panels b { color: var(--ink); font-weight: 600; margin-right: .35rem; }
svg.use { display: block; width: 100%; height: 4.5rem; background: var(--panel); }
.use .area { fill-opacity: .75; shape-rendering: crispEdges; }
.use .base { stroke: var(--line); vector-effect: non-scaling-stroke; }
.use .limit {
  stroke: var(--ink); stroke-dasharray: 4 3; vector-effect: non-scaling-stroke; opacity: .6;
}
.money .shares {
  display: block; width: 100%; height: 1.1rem; border-radius: .3rem; max-width: 62rem;
}
.money .legend i {
  display: inline-block; width: .65em; height: .65em; border-radius: 2px; margin-right: .45em;
}
.money .used { background: var(--c2); fill: var(--c2); }
.money .idle { background: var(--line); fill: var(--line); }
.money .lost { background: var(--bad); fill: var(--bad); }
section > h3 + .scroll { margin-top: .4rem; }
.scroll + article { margin-top: 1.25rem; }
article { border: 1px solid var(--line); border-radius: .5rem; margin: 0 0 1rem; overflow: hidden; }
article header {
  padding: .7rem 1rem; display: flex; flex-wrap: wrap; gap: .1rem 1.25rem;
  align-items: baseline;
}
article header p { margin: 0; }
article .numbers { color: var(--soft); font-size: .85rem; margin-left: auto; }
article pre {
  margin: 0; padding: .7rem 1rem; border-top: 1px solid var(--line); background: var(--panel);
  white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.45;
}
article pre.command { background: none; color: var(--soft); }
ul.plain { margin: .4rem 0 0; padding-left: 1.2rem; }
section > h3 { margin-top: 1.5rem; }
footer {
  margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); color: var(--soft);
  font-size: .8rem;
}
@media screen and (max-width: 48rem) {
  body { padding: 1.25rem 1rem 2rem; }
  .facts .wide { grid-column: auto; }
  svg.wide { display: none; } svg.narrow { display: block; }
  .numbers { margin-left: 0; }
}
@media print {
  @page { margin: 14mm; }
  body { padding: 0; max-width: none; font-size: 10.5pt; }
  table { font-size: 7.5pt; } th, td { padding: .3rem .3rem; }
  .scroll { overflow: visible; } svg.chart { min-width: 0; }
  h2, h3, thead, article header { break-after: avoid; }
  tr, article, svg.chart { break-inside: avoid; }
  /* Browsers print a pattern as a picture each time. Hollow shapes keep the file small. */
  .bars .failed, .failed { fill: none; stroke-width: 1.5; }
  dl.facts, article pre { background: none; } dl.facts { border: 1px solid var(--line); }
}
"""
