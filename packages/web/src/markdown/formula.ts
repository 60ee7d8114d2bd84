import katex from 'katex';

/** TeX as MathML, which browsers display without additional fonts or styles. */
export const toMathMl = (tex: string, displayMode: boolean): string =>
  katex.renderToString(tex, {
    displayMode,
    output: 'mathml',
    throwOnError: true,
    trust: false,
    maxExpand: 200,
    maxSize: 20,
  });
