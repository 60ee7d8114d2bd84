/** Arguments with which Node runs the sources of the host without a build. */
export const SOURCE_ARGS = [
  '--experimental-transform-types',
  '--disable-warning=ExperimentalWarning',
  '--import',
  new URL('./source-hooks.ts', import.meta.url).href,
];
