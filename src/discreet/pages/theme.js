'use strict';
// Light and dark: what the reader's machine prefers, until the button is pressed.
document.getElementById('theme').addEventListener('click', function () {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
});
