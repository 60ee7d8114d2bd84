import mermaid from 'mermaid';

let count = 0;

/** Draws a diagram and returns the address of an image; rejects if the source is not valid. */
export async function drawDiagram(code: string): Promise<string> {
  const isDark = matchMedia('(prefers-color-scheme: dark)').matches;
  const { theme } = document.documentElement.dataset;
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: 'strict',
    theme: theme === 'dark' || (theme !== 'light' && isDark) ? 'dark' : 'neutral',
    fontFamily: 'sans-serif',
    suppressErrorRendering: true,
    // HTML inside an image is not displayed.
    htmlLabels: false,
    flowchart: { htmlLabels: false },
  });
  await mermaid.parse(code);
  count += 1;
  const { svg } = await mermaid.render(`diagram-${count}`, code);
  return URL.createObjectURL(new Blob([setSize(svg)], { type: 'image/svg+xml' }));
}

/** An image needs its own size. */
function setSize(svg: string): string {
  const [, width, height] = /viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"/.exec(svg) ?? [];
  return width ? svg.replace('width="100%"', `width="${width}" height="${height}"`) : svg;
}
