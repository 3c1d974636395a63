// The page is made anew from each state, and then laid over the old one: what did not change stays, with its focus, its
// selection, and what the reader has opened. Text only ever becomes text nodes and attributes, never HTML.

// h('p.quiet', {title: 'x'}, 'text', node, …): null and false are left out.
function h(what, attributes, ...children) {
  const [tag, ...classes] = what.split('.');
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(' ');
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === false || value === undefined) continue;
    if (name === 'css') for (const [property, v] of Object.entries(value)) node.style.setProperty(property, v);
    else if (name === 'onclick') node.onclick = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat(9).filter((child) => child !== null && child !== false && child !== undefined && child !== ''));
  return node;
}

function svg(tag, attributes) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function is_same(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName &&
    (a.nodeType !== Node.ELEMENT_NODE || a.getAttribute('data-key') === b.getAttribute('data-key'));
}

function lay_attributes(old, made) {
  for (const {name} of [...old.attributes]) {
    // What the reader has opened stays open.
    if (!made.hasAttribute(name) && !(name === 'open' && old.nodeName === 'DETAILS')) old.removeAttribute(name);
  }
  for (const {name, value} of made.attributes) {
    if (name !== 'style' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  // A style attribute would be against the page's own policy; properties are not.
  if (old.style && old.style.cssText !== made.style.cssText) old.style.cssText = made.style.cssText;
  if (old.nodeName === 'PROGRESS' && made.hasAttribute('value')) old.value = Number(made.getAttribute('value'));
  old.onclick = made.onclick;
}

function lay_over(old, made) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return;
  }
  lay_attributes(old, made);
  lay_children(old, [...made.childNodes]);
}

function lay_children(parent, made) {
  const keyed = new Map();
  for (const child of parent.childNodes) {
    if (child.dataset && child.dataset.key) keyed.set(child.dataset.key, child);
  }
  made.forEach((node, i) => {
    const at = parent.childNodes[i] || null;
    const old = (node.dataset && node.dataset.key && keyed.get(node.dataset.key)) || at;
    if (old && is_same(old, node)) {
      if (old !== at) parent.insertBefore(old, at);
      lay_over(old, node);
    } else {
      parent.insertBefore(node, at);
    }
  });
  while (parent.childNodes.length > made.length) parent.lastChild.remove();
}

function show(id, ...nodes) {
  lay_children(document.getElementById(id), nodes.flat(9).filter(Boolean));
}

function pill(text, kind) {
  return h(`span.pill${kind ? `.${kind}` : ''}`, null, text);
}

function unlisted(rest, noun, command) {
  return rest ? h('p.empty', {'data-key': 'left'}, `${count(rest, noun)} not listed: see ${command}.`) : null;
}

function empty(text) {
  return h('p.card.empty', null, text);
}

// A table: columns of [heading, cell of a row, whether it is a number].
function table(caption, columns, rows, key) {
  return h('div.scroll', {tabindex: 0, role: 'region', 'aria-label': caption},
    h('table', null,
      h('thead', null, h('tr', null, columns.map(([name, , right]) => h(right ? 'th.number' : 'th', {scope: 'col'}, name)))),
      h('tbody', null, rows.map((row) => h('tr', {'data-key': key(row)},
        columns.map(([, cell, right]) => h(right ? 'td.number' : 'td.name', null, cell(row))))))));
}

// Each version has a color as long as the page is open: the next one that is free for longest.
const colors = new Map();
const COLORS = 10;
function color(version) {
  if (!colors.has(version)) colors.set(version, colors.size % COLORS);
  return `c${colors.get(version)}`;
}
