'use strict';
(function () {
  const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));

  // The legend: a line that is switched off is off in every chart that has it.
  function show(label, shown) {
    for (const each of all('[data-series]')) {
      if (each.dataset.series !== label) continue;
      if (each.matches('g')) each.classList.toggle('off', !shown);
      else each.setAttribute('aria-pressed', String(shown));
    }
  }
  for (const key of all('.key'))
    key.addEventListener('click', () => show(key.dataset.series, key.getAttribute('aria-pressed') !== 'true'));
  for (const every of all('.all'))
    every.addEventListener('click', () => all('.key', every.parentElement).forEach(key => show(key.dataset.series, true)));

  // Tables: a press on a heading sorts, a second one turns the order round; what has no value comes last.
  function sort(table, column, heading) {
    const rising = heading.getAttribute('aria-sort') !== 'ascending';
    for (const other of all('thead th', table)) other.removeAttribute('aria-sort');
    heading.setAttribute('aria-sort', rising ? 'ascending' : 'descending');
    const value = row => {
      const cell = row.cells[column];
      if (cell.dataset.value === undefined) return cell.textContent;
      return cell.dataset.value === 'inf' ? Infinity : Number(cell.dataset.value);
    };
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === '–' || y === '–') return (x === '–') - (y === '–');
      const found = typeof x === 'number' && typeof y === 'number' ? (x < y ? -1 : x > y ? 1 : 0)
        : String(x).localeCompare(String(y), 'en', {numeric: true});
      return rising ? found : -found;
    };
    const body = table.tBodies[0];
    body.append(...Array.from(body.rows).sort(order));
  }
  for (const table of all('table.sortable'))
    all('thead th', table).forEach((heading, column) =>
      heading.firstElementChild.addEventListener('click', () => sort(table, column, heading)));

  // Charts: the values at the nearest x, by pointer or by arrow keys.
  const values = document.getElementById('values');
  const text = number => Math.abs(number) >= 1e4 ? number.toLocaleString('en', {maximumFractionDigits: 0})
    : String(Number(number.toPrecision(4)));

  function lines(chart) {
    return all('g.series', chart).filter(g => !g.classList.contains('off')).map(g => ({
      label: g.dataset.series, look: g.getAttribute('class'), at: JSON.parse(g.dataset.at), x: JSON.parse(g.dataset.x),
      y: JSON.parse(g.dataset.y), low: JSON.parse(g.dataset.low), high: JSON.parse(g.dataset.high),
      names: g.dataset.names ? JSON.parse(g.dataset.names) : null
    }));
  }
  const nearest = (line, x) => line.x.reduce((best, v, i) =>
    Math.abs(Math.log((v + 1) / (x + 1))) < Math.abs(Math.log((line.x[best] + 1) / (x + 1))) ? i : best, 0);

  function tell(chart, x, client) {
    const shown = lines(chart);
    if (!shown.length) return hide(chart);
    const at = shown.map(line => nearest(line, x));
    const first = shown.findIndex((line, n) => line.x[at[n]] === x);
    const lead = first < 0 ? 0 : first;
    const name = shown[lead].names ? shown[lead].names[at[lead]] : text(shown[lead].x[at[lead]]);
    values.replaceChildren();
    const head = document.createElement('b');
    head.textContent = chart.dataset.xLabel + ': ' + name;
    values.append(head);
    const order = shown.map((line, n) => n).sort((a, b) => shown[b].y[at[b]] - shown[a].y[at[a]]);
    for (const n of order) {
      const line = shown[n], i = at[n];
      if (line.names && line.names[i] !== name) continue;
      const row = document.createElement('span'), mark = document.createElement('i');
      mark.className = line.look.replace('series', '');
      row.append(mark, line.label + ': ' + text(line.y[i]) + ' (' + text(line.low[i]) + ' to ' + text(line.high[i]) + ')');
      values.append(row);
    }
    const place = shown[lead].at[at[lead]][0];
    const cross = chart.querySelector('.cross');
    cross.setAttribute('x1', place);
    cross.setAttribute('x2', place);
    values.hidden = false;
    const box = chart.getBoundingClientRect();
    const left = client ? client[0] : box.left + place / chart.viewBox.baseVal.width * box.width;
    const top = client ? client[1] : box.top;
    values.style.left = Math.max(4, Math.min(left + 14, innerWidth - values.offsetWidth - 4)) + 'px';
    values.style.top = Math.max(4, Math.min(top + 14, innerHeight - values.offsetHeight - 4)) + 'px';
  }
  function hide(chart) {
    values.hidden = true;
    chart.querySelector('.cross').setAttribute('x1', -9);
    chart.querySelector('.cross').setAttribute('x2', -9);
  }
  const stops = chart => Array.from(new Set(lines(chart).flatMap(line => line.x))).sort((a, b) => a - b);

  for (const chart of all('svg.chart')) {
    let stop = -1;
    chart.addEventListener('pointermove', function (event) {
      const box = chart.getBoundingClientRect();
      const place = (event.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
      let best = null;
      for (const line of lines(chart))
        line.at.forEach((at, i) => {
          if (best === null || Math.abs(at[0] - place) < best[0]) best = [Math.abs(at[0] - place), line.x[i]];
        });
      if (best) tell(chart, best[1], [event.clientX, event.clientY]);
    });
    chart.addEventListener('pointerleave', () => hide(chart));
    chart.addEventListener('blur', () => hide(chart));
    chart.addEventListener('keydown', function (event) {
      const step = {ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9}[event.key];
      if (event.key === 'Escape') hide(chart);
      if (step === undefined) return;
      event.preventDefault();
      const found = stops(chart);
      stop = Math.max(0, Math.min(found.length - 1, stop + step));
      if (found.length) tell(chart, found[stop]);
    });
  }

  // On paper everything is open.
  addEventListener('beforeprint', () => all('article details').forEach(each => { each.open = true; }));
})();
