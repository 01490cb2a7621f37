// The style sheet of all pages. Light and dark follow the reader's system. All text has at least
// the contrast of WCAG AA, and readers who prefer reduced motion get no animations. The fonts are
// those of the system.

/** CSS. */
export const style = `
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#16202b;--dim:#556170;--line:#e0e5ea;
--soft:#eef1f4;--accent:#0f766e;--link:#0b5fa5;--grid:#e4e8ec;
--critical:#b42318;--warning:#8a5300;--info:#1d5fa3;--ok:#1c6b3c;--quiet:#667080;
--critical-bg:#fdeceA;--warning-bg:#fdf3dc;--info-bg:#e8f1fb;--ok-bg:#e6f4ec;
--bar-conform:#3f9f6b;--bar-pending:#5b8fd0;--bar-different:#d1483d;--bar-unknown:#c98a1b;
--line-1:#0b6fb8;--line-2:#b4530a;--line-3:#7a3fb0;--shadow:0 1px 2px #10203010}
@media(prefers-color-scheme:dark){:root{--bg:#0f1419;--card:#171d24;--ink:#e6eaee;--dim:#9aa6b2;
--line:#2a333d;--soft:#1f2730;--accent:#2dd4bf;--link:#7db8f0;--grid:#28313a;
--critical:#ff9a90;--warning:#f3c566;--info:#8fc0f5;--ok:#7fd3a0;--quiet:#9aa6b2;
--critical-bg:#3c1d1b;--warning-bg:#372b12;--info-bg:#182b40;--ok-bg:#163324;
--bar-conform:#3f9f6b;--bar-pending:#5b8fd0;--bar-different:#e0675d;--bar-unknown:#d9a03c;
--line-1:#5fb2f0;--line-2:#f0a35f;--line-3:#c39af0;--shadow:none}}
*{box-sizing:border-box}
html{scroll-padding-top:4rem}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,
"Segoe UI",Roboto,"Liberation Sans",sans-serif;overflow-wrap:anywhere}
.wide{max-width:78rem;margin:0 auto;padding:0 1.25rem}
a{color:var(--link);text-decoration-thickness:1px;text-underline-offset:2px}
a:hover{text-decoration-thickness:2px}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px;border-radius:4px}
main:focus{outline:none}
.skip{position:absolute;left:-99rem}
.skip:focus{left:1rem;top:.5rem;z-index:9;background:var(--card);padding:.4rem .8rem}
.dim{color:var(--dim)}
.sr{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.chips{list-style:none;display:flex;flex-wrap:wrap;gap:.3rem 1.3rem;margin:.4rem 0 0;padding:0}
code,kbd,.mono,dd,.tree .text{font-family:ui-monospace,"SF Mono","Cascadia Mono","Liberation Mono",
monospace;font-size:.86em}
kbd{border:1px solid var(--line);border-bottom-width:2px;border-radius:4px;padding:0 .35em}

header{background:var(--card);border-bottom:1px solid var(--line);position:sticky;top:0;z-index:5}
header .wide{display:flex;align-items:center;gap:.4rem 1.6rem;min-height:3.4rem;flex-wrap:wrap}
.brand{display:flex;align-items:center;gap:.55rem;color:var(--ink);font-weight:650;
text-decoration:none;letter-spacing:-.01em}
.logo{width:1.1rem;height:1.1rem;border-radius:.3rem;background:var(--accent);
border-right:.35rem solid var(--bar-pending)}
nav ul{display:flex;gap:.2rem;list-style:none;margin:0;padding:0}
nav a{display:block;padding:.35rem .7rem;border-radius:.5rem;color:var(--dim);text-decoration:none;
font-weight:500}
nav a:hover{background:var(--soft);color:var(--ink)}
nav a[aria-current]{background:var(--soft);color:var(--ink);box-shadow:inset 0 -2px var(--accent)}
nav .count{font-size:.8em;color:var(--dim);font-variant-numeric:tabular-nums}
.live{margin:0 0 0 auto;display:flex;align-items:center;gap:.45rem;font-size:.86rem;
color:var(--dim);font-variant-numeric:tabular-nums}
.dot{width:.6rem;height:.6rem;border-radius:50%;border:2px solid var(--quiet)}
.live[data-state=live] .dot{background:var(--bar-conform);border-color:var(--bar-conform);
animation:pulse 2s infinite}
.live[data-state=lost] .dot{background:var(--critical);border-color:var(--critical);
border-radius:1px}
@keyframes pulse{50%{opacity:.35}}
.is-lost main>:not(.lost){opacity:.6}
.lost:empty{display:none}
.lost,.notice{margin:1rem 0 0;padding:.6rem 1rem;border-radius:.6rem;font-weight:500}
.lost{background:var(--critical-bg);color:var(--critical)}
.notice.warning{background:var(--warning-bg);color:var(--warning)}

h1{font-size:1.5rem;line-height:1.25;margin:1.4rem 0 .2rem;letter-spacing:-.015em}
h2{font-size:1rem;margin:0 0 .7rem}
h2 small,h1 small{color:var(--dim);font-weight:400;font-size:.86em}
.lead{margin:0 0 1rem;color:var(--dim)}
.crumbs{margin:1.2rem 0 -.9rem;font-size:.86rem}
.grid{display:grid;grid-template-columns:minmax(0,5fr) minmax(0,3fr);gap:1.1rem;margin:1.1rem 0}
.grid>div{display:grid;gap:1.1rem;align-content:start;min-width:0}
.card{background:var(--card);border:1px solid var(--line);border-radius:.8rem;padding:1rem 1.1rem;
box-shadow:var(--shadow);margin:0 0 1.1rem;min-width:0}
.grid .card{margin:0}
.card.flush{padding:0;overflow:hidden}
.card.flush>h2{padding:1rem 1.1rem 0}
.scroll{overflow-x:auto}

.head{display:flex;flex-wrap:wrap;align-items:center;gap:.4rem 1.4rem;border-radius:.9rem;
padding:1.1rem 1.3rem;margin:1.2rem 0 0;background:var(--ok-bg);color:var(--ok)}
.head h1{margin:0;font-size:1.65rem}
.head p{margin:0;color:var(--ink)}
.head .sign{font-size:1.7rem;line-height:1}
.head.critical{background:var(--critical-bg);color:var(--critical)}
.head.warning{background:var(--warning-bg);color:var(--warning)}
.head.info,.head.pending,.head.quiet{background:var(--info-bg);color:var(--info)}
.head ul{white-space:pre-line}

.mark{display:inline-flex;gap:.3em;align-items:baseline;font-size:.8rem;font-weight:600;
padding:.05rem .5rem;border-radius:1rem;white-space:nowrap;background:var(--soft);color:var(--dim)}
.mark.critical,.mark.different{background:var(--critical-bg);color:var(--critical)}
.mark.warning,.mark.unknown{background:var(--warning-bg);color:var(--warning)}
.mark.info,.mark.pending{background:var(--info-bg);color:var(--info)}
.mark.conform,.mark.resolved{background:var(--ok-bg);color:var(--ok)}

ul.findings{list-style:none;margin:0;padding:0}
.finding{padding:.75rem 1.1rem;border-top:1px solid var(--line);position:relative}
.finding:first-child{border-top:0}
.finding::before{content:"";position:absolute;inset:.75rem auto .75rem 0;width:3px;
border-radius:0 3px 3px 0;background:var(--line)}
.finding.critical::before{background:var(--critical)}
.finding.warning::before{background:var(--bar-unknown)}
.finding.info::before{background:var(--bar-pending)}
.finding p{margin:0}
.finding .line{display:flex;flex-wrap:wrap;gap:.2rem .6rem;align-items:baseline}
.finding .name{font-weight:600;color:var(--ink)}
.finding .where{color:var(--dim);font-size:.86rem}
.finding .say{margin:.15rem 0}
.finding .dim{font-size:.84rem}
.sides{margin:.25rem 0;display:grid;gap:.15rem}
.sides div{display:grid;grid-template-columns:4.8rem 1fr}
.sides dt{color:var(--dim);font-size:.84rem}
.sides dd{margin:0}
.more{padding:.7rem 1.1rem;margin:0;border-top:1px solid var(--line)}
.card.flush>.none{padding:0 1.1rem 1rem;margin:0}

table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.92rem}
caption{text-align:left}
th,td{padding:.42rem .75rem;text-align:right;white-space:nowrap;border-top:1px solid var(--line)}
thead th{border-top:0;color:var(--dim);font-weight:500;font-size:.84rem;vertical-align:bottom}
th:first-child,td:first-child,.left{text-align:left}
.left th,.left td{text-align:left}
tbody th{font-weight:500}
tbody tr:hover{background:var(--soft)}
td.zero{color:var(--quiet)}
td.conform{color:var(--ok)}td.pending{color:var(--info)}
td.different{color:var(--critical);font-weight:650}td.unknown{color:var(--warning);font-weight:650}
.card.flush table{margin:0}
.card.flush th:first-child,.card.flush td:first-child{padding-left:1.1rem}

.bar{display:block;width:100%;height:.55rem;border-radius:.3rem;background:var(--soft);
overflow:hidden}
rect.conform{fill:var(--bar-conform)}rect.pending{fill:var(--bar-pending)}
rect.different{fill:var(--bar-different)}rect.unknown{fill:var(--bar-unknown)}
rect.quiet{fill:var(--line)}rect.info{fill:var(--bar-pending)}
.verdicts{display:grid;gap:.85rem;margin:0;padding:0;list-style:none}
.verdicts .top{display:flex;justify-content:space-between;gap:1rem;margin-bottom:.25rem}
.verdicts .top b{font-weight:550}
.verdicts .top .dim{font-size:.84rem;text-align:right}
.plain{list-style:none;margin:0;padding:0;display:grid;gap:.4rem}
.plain li{display:flex;flex-wrap:wrap;justify-content:space-between;gap:.1rem 1rem}
.plain .dim{font-size:.86rem}

.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.8rem;
margin:1.1rem 0 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:.8rem;padding:.7rem 1rem}
.tile b{display:block;font-size:1.35rem;line-height:1.25;letter-spacing:-.02em}
.tile span{color:var(--dim);font-size:.86rem}

.filter{display:flex;flex-wrap:wrap;gap:.6rem;margin:0 0 1rem;align-items:end}
.filter label{display:grid;gap:.15rem;font-size:.82rem;color:var(--dim)}
.filter input,.filter select,.filter button{font:inherit;color:var(--ink);background:var(--card);
border:1px solid var(--quiet);border-radius:.5rem;padding:.38rem .65rem;min-height:2.4rem;
max-width:100%}
.filter input{width:19rem}
.filter button{background:var(--soft);cursor:pointer;font-weight:500}
.pages{display:flex;gap:1rem;align-items:center;margin:.9rem 0 1.4rem}

.plot{height:260px}
.uplot,.uplot *{box-sizing:border-box}
.uplot{font-family:inherit;line-height:1.5;width:100%}
.u-wrap{position:relative;user-select:none}
.u-title{display:none}
.u-over,.u-under{position:absolute}.u-under{overflow:hidden}
.uplot canvas{display:block;position:relative;width:100%;height:100%}
.u-axis{position:absolute}
.u-legend{font-size:.84rem;margin:auto;text-align:center;width:auto}
.u-inline{display:block}.u-inline *{display:inline-block}.u-inline tr{margin-right:1rem}
.u-legend th,.u-legend td,.card.flush .u-legend th:first-child{border:0;padding:.1rem .25rem}
.u-legend tr:hover{background:none}
.u-legend th{font-weight:600}.u-legend th>*{vertical-align:middle;display:inline-block}
.u-legend .u-marker{width:1.1em;height:.3em;margin-right:.35em;border-radius:2px}
.u-inline.u-live th::after{content:":"}
.u-select{position:absolute;pointer-events:none}
.u-cursor-x,.u-cursor-y{position:absolute;left:0;top:0;pointer-events:none}
.u-hz .u-cursor-x,.u-vt .u-cursor-y{height:100%;border-right:1px dashed var(--quiet)}
.u-hz .u-cursor-y,.u-vt .u-cursor-x{width:100%;border-bottom:1px dashed var(--quiet)}
.u-cursor-pt{position:absolute;top:0;left:0;border-radius:50%;border:0 solid;pointer-events:none}
.u-axis.u-off,.u-select.u-off,.u-cursor-x.u-off,.u-cursor-y.u-off,.u-cursor-pt.u-off{display:none}

.tree,.tree ul{list-style:none;margin:0;padding:0}
.tree ul{margin-left:-.85em;padding-left:.8rem;border-left:1px solid var(--line)}
.tree li{margin:.3rem 0;padding-left:1.2em;position:relative}
.tree .sign{position:absolute;left:0;font-weight:700}
.tree .yes>.sign{color:var(--ok)}.tree .no>.sign{color:var(--critical)}
.tree .unknown>.sign{color:var(--warning)}.tree .note>.sign{color:var(--quiet)}
.tree small{display:block;color:var(--dim);font-size:.84rem}
.cure{display:block;padding:.1rem 0;color:var(--accent)}
.answer{font-size:1.05rem;margin:.2rem 0 .6rem}
.answer+.cure{margin:-.3rem 0 .8rem}

.matrix td,.matrix th{text-align:left;border-left:1px solid var(--line);vertical-align:top}
.matrix td:first-child,.matrix th:first-child{border-left:0}
.matrix thead th{white-space:normal;max-width:11rem;font-family:ui-monospace,monospace;
font-size:.78rem}
.matrix .wrong{background:var(--critical-bg)}
.matrix .wait{background:var(--info-bg)}
.matrix .cell b{font-weight:650}
.matrix small{display:block;color:var(--dim);font-size:.8rem;white-space:normal;max-width:17rem}
.matrix .absent{color:var(--dim)}
.matrix .ready .sign{color:var(--ok)}.matrix .not-ready .sign{color:var(--warning)}
.matrix .wrong .sign{color:var(--critical)}
.matrix tbody th{position:sticky;left:0;background:var(--card);max-width:18rem;white-space:normal;
font-weight:500}
.fills{display:grid;gap:.6rem;margin:0;padding:0;list-style:none}
.fills li{display:grid;grid-template-columns:minmax(0,1fr) 7rem 3.6rem;gap:.8rem;align-items:center}
.fills .count{text-align:right;font-size:.86rem;font-variant-numeric:tabular-nums}
.rules{margin:.5rem 0 0;padding:.6rem .8rem;background:var(--soft);border-radius:.5rem;
overflow-x:auto;font:.82em/1.6 ui-monospace,monospace;list-style:none}
details>summary{cursor:pointer;color:var(--link)}
dl.codes{margin:0}
dl.codes dt{font-weight:600;margin-top:.9rem;scroll-margin-top:5rem}
dl.codes dt:first-child{margin-top:0}
dl.codes dd{margin:.15rem 0;font:inherit}
dl.codes dt:target{background:var(--warning-bg)}
.is-new{animation:new 1.6s ease-out}
@keyframes new{from{background:var(--warning-bg)}}
footer{color:var(--dim);font-size:.84rem;padding-bottom:2.5rem}
footer p{margin:.3rem 0}
footer{border-top:1px solid var(--line);padding-top:.8rem;margin-top:2rem}

@media(max-width:60rem){.grid{grid-template-columns:minmax(0,1fr)}}
@media(max-width:40rem){body{font-size:14px}.wide{padding:0 .8rem}header{position:static}
header .wide{padding-top:.5rem;padding-bottom:.5rem}
nav{order:3;width:100%;overflow-x:auto}nav a{padding:.35rem .55rem}nav .count{display:none}
.head{padding:.9rem 1rem}.head h1{font-size:1.3rem}.card{padding:.85rem .8rem}
.finding,.more{padding-left:.9rem;padding-right:.8rem}
.card.flush>h2{padding:.9rem .9rem 0}.narrow-off,.keys{display:none}
th,td{padding:.38rem .5rem}.matrix tbody th{position:static}
.filter label,.filter input{width:100%}.fills li{grid-template-columns:minmax(0,1fr) 4rem 3.2rem}}
@media(prefers-reduced-motion:reduce){*{animation:none!important;transition:none!important}}
@media print{header,.filter,footer{display:none}.card{break-inside:avoid}}
`;
