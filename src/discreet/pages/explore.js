(function () {
  const get = id => document.getElementById(id);
  const all = selector => Array.from(document.querySelectorAll(selector));
  const whole = number => Math.round(number).toLocaleString('en');
  const short = number => number >= 1e9 ? number / 1e9 + 'G' : number >= 1e6 ? number / 1e6 + 'M'
    : number >= 1e3 ? number / 1e3 + 'k' : String(number);
  const digits = number => number === null || number === undefined ? '∞' : Math.abs(number) >= 1e4 ? whole(number)
    : String(Number(number.toPrecision(3)));

  // Every control is a number and a slider over round values; the number is what counts.
  const controls = all('.control[data-name]').map(place => {
    const number = place.querySelector('input[type=number]'), slider = place.querySelector('input[type=range]');
    const stops = JSON.parse(slider.dataset.stops);
    const follow = () => {
      const near = stops.reduce((best, v, i) => Math.abs(v - number.value) < Math.abs(stops[best] - number.value) ? i : best, 0);
      slider.value = near;
      slider.setAttribute('aria-valuetext', number.value);
    };
    slider.addEventListener('input', () => {
      number.value = stops[slider.value];
      slider.setAttribute('aria-valuetext', number.value);
      changed();
    });
    number.addEventListener('input', () => { follow(); changed(); });
    follow();
    return {name: place.dataset.name, number, follow};
  });
  const control = name => controls.find(each => each.name === name);
  const model = () => document.querySelector('input[name=model]:checked').value;
  for (const radio of all('input[name=model]'))
    radio.addEventListener('change', function () {
      const delta = control('delta');
      // Shuffled bits need a δ; reports to a curator, to two servers or to nobody take none.
      if (model() === 'shuffle' && Number(delta.number.value) === 0) { delta.number.value = '0.000001'; delta.follow(); }
      if (model() !== 'shuffle' && Number(delta.number.value) === 0.000001) { delta.number.value = '0'; delta.follow(); }
      changed();
    });
  get('pooled').addEventListener('change', () => changed());

  // One question at a time: while one is out, the sliders may move on, and the last position is asked next.
  let asking = false, again = false, timer = 0;
  function changed() {
    get('answers').setAttribute('aria-busy', 'true');
    clearTimeout(timer);
    timer = setTimeout(ask, 120);
  }
  async function ask() {
    if (asking) { again = true; return; }
    asking = true;
    const query = new URLSearchParams({model: model(), pooled: String(get('pooled').checked)});
    const states = Number(control('states').number.value);
    for (const each of controls)
      query.set(each.name, each.name === 'branching' ? String(Math.min(Number(each.number.value), states)) : each.number.value);
    try {
      const response = await fetch('answer?' + query);
      const found = await response.json();
      if (response.ok) show(found, Number(control('users').number.value)); else refuse(found.error);
    } catch (error) {
      refuse('nobody answers; is discreet explore still running?');
    }
    asking = false;
    if (again) { again = false; ask(); return; }
    get('answers').setAttribute('aria-busy', 'false');
  }
  function refuse(sentence) {
    get('error').textContent = sentence;
    get('error').hidden = false;
  }

  function element(name, text, look) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (look) made.className = look;
    return made;
  }
  function rows(table, lines, head) {
    table.replaceChildren();
    if (head) {
      const top = table.createTHead().insertRow();
      for (const name of head) { const cell = element('th', name); cell.scope = 'col'; top.append(cell); }
    }
    const body = table.createTBody();
    for (const line of lines) {
      const row = body.insertRow();
      line.forEach((text, i) => {
        const cell = element(i === 0 ? 'th' : 'td', text);
        if (i === 0) cell.scope = 'row';
        row.append(cell);
      });
    }
  }

  function needed(found, users) {
    if (found.users_needed !== null) return whole(found.users_needed);
    return found.feasible ? 'at most ' + whole(users) : 'no number helps';
  }
  function card(id, found, why, users) {
    const place = get(id), mark = place.querySelector('.mark'), verdict = place.querySelector('.verdict');
    mark.className = 'mark ' + (found === null ? 'none' : found.feasible ? 'yes' : 'no');
    mark.textContent = found === null ? 'not with this choice' : found.feasible ? '✓ can be learned' : '✗ too few users';
    verdict.textContent = found === null ? why : found.verdict;
    rows(place.querySelector('.numbers'), found === null ? [] : [
      ['users needed, about', needed(found, users)],
      ['sd of the noise', digits(found.deviation)],
      [id === 'reports' ? 'reports of an even cell' : 'visits of an even cell', digits(found.visits)],
      ['times the noise', digits(found.signal)]
    ]);
  }

  const SVG = 'http:' + '//www.w3.org/2000/svg';  // a name, nothing is loaded from there
  function drawn(parent, name, values, text) {
    const made = document.createElementNS(SVG, name);
    for (const key of Object.keys(values)) made.setAttribute(key, values[key]);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }
  function scale(users, found) {
    const marks = [['you have', users, 'have']];
    for (const [id, words] of [['reports', 'reports need'], ['counts', 'counts need']])
      if (found[id] && found[id].users_needed !== null)
        marks.push([words, found[id].users_needed, found[id].users_needed <= users ? 'enough' : 'need']);
    const low = Math.floor(Math.log10(Math.min(...marks.map(m => m[1])))), high = Math.ceil(Math.log10(Math.max(...marks.map(m => m[1])) * 1.01));
    const wide = 720, left = 20, right = 700, tall = 50 * marks.length + 34;
    const at = value => left + (right - left) * (Math.log10(value) - low) / Math.max(high - low, 1);
    const place = get('scale'), picture = document.createElementNS(SVG, 'svg');
    picture.setAttribute('viewBox', '0 0 ' + wide + ' ' + tall);
    marks.forEach(([words, value, look], i) => {
      const y = 8 + 50 * i, x = at(value), told = words + ' ' + whole(value);
      drawn(picture, 'rect', {x: left, y: y, width: Math.max(x - left, 2), height: 12, rx: 3, class: look});
      drawn(picture, 'text', {x: left, y: y + 34}, told);
    });
    const floor = tall - 26;
    drawn(picture, 'line', {x1: left, x2: right, y1: floor, y2: floor, class: 'axis'});
    const last = Math.max(high, low + 1), step = Math.ceil((last - low) / 4);
    for (let power = low; power <= last; power += step) {
      const end = power === low ? ' least' : power + step > last ? ' last' : '';
      drawn(picture, 'text', {x: at(10 ** power), y: tall - 4, class: 'tick' + end}, short(10 ** power));
    }
    place.replaceChildren(picture);
    place.setAttribute('aria-label', marks.map(m => m[0] + ' ' + whole(m[1])).join(', '));
  }

  const NAMES = {N: 'visits', T: 'transitions', R: 'rewards'};
  function show(found, users) {
    get('error').hidden = true;
    card('reports', found.reports, found.no_reports, users);
    card('counts', found.counts, found.no_counts, users);
    scale(users, found);
    get('guarantee').textContent = found.counts === null ? found.no_counts : found.counts.guarantee.sentence;
    rows(get('noise'), found.counts === null ? [] : Object.entries(found.counts.families).map(([name, noise]) =>
      [NAMES[name] || name, digits(noise.scale * (name === 'R' ? found.counts.grid : 1)), digits(noise.deviation), digits(noise.width)]),
      ['family', 'scale', 'sd at the end', 'width']);
    rows(get('measured'), found.measured.map(m => [m.problem, m.learner, digits(m.states), digits(m.actions),
      digits(m.horizon), m.branching === null ? '–' : digits(m.branching), whole(m.users), m.epsilon === null ? '∞' : digits(m.epsilon),
      m.model, m.ratio.toFixed(3), m.worst.toFixed(3), m.gap.toFixed(3)]),
      ['problem', 'learner', 'S', 'A', 'H', 'outcomes', 'users', 'ε', 'trust', 'regret ratio', 'worst', 'last gap']);
    let before = null;
    for (const row of get('measured').tBodies[0].rows) {
      const name = row.cells[0].textContent + row.cells[6].textContent;
      row.classList.toggle('first', name !== before);
      before = name;
    }
    get('command').textContent = found.command;
  }
  changed();
})();
