import { isValidElement, type ReactNode, useEffect, useState, useSyncExternalStore } from 'react';
import { Fragment, jsx, jsxs } from 'react/jsx-runtime';
import { showReordering } from '../i18n/format.js';
import { t } from '../i18n/i18n.js';
import { CopyButton } from '../ui/copy-button.js';
import { IconButton } from '../ui/icon.js';
import type { FencedCode } from './markdown-blocks.js';

/** What a fenced block contains: code, a formula or a diagram. */
export function CodeBlock({ children }: { readonly children?: ReactNode }) {
  const code = collectText(children).replace(/\n$/, '');
  return <Fenced language={findLanguage(children)} code={code} />;
}

export function Fenced({ language, code }: FencedCode) {
  if (language === 'math') return <Formula tex={code} isBlock />;
  if (language === 'mermaid') return <Diagram code={code} />;
  return <Code language={language} code={code} />;
}

function findLanguage(node: ReactNode): string {
  if (!isValidElement<{ className?: string }>(node)) return '';
  return /language-([\w+#-]+)/.exec(node.props.className ?? '')?.[1] ?? '';
}

/** Joins the text of elements. */
function collectText(node: ReactNode): string {
  if (typeof node === 'string' || typeof node === 'number') return String(node);
  if (Array.isArray(node)) return node.map(collectText).join('');
  if (isValidElement<{ children?: ReactNode }>(node)) return collectText(node.props.children);
  return '';
}

/** Of languages whose short name is common in answers. */
const names: Readonly<Record<string, string>> = {
  bash: 'Shell',
  cpp: 'C++',
  cs: 'C#',
  css: 'CSS',
  go: 'Go',
  html: 'HTML',
  java: 'Java',
  javascript: 'JavaScript',
  js: 'JavaScript',
  json: 'JSON',
  py: 'Python',
  python: 'Python',
  rust: 'Rust',
  sh: 'Shell',
  sql: 'SQL',
  ts: 'TypeScript',
  tsx: 'TypeScript',
  typescript: 'TypeScript',
  xml: 'XML',
  yaml: 'YAML',
};

/** Characters; all of the code is highlighted again whenever some is added, which takes long for more. */
const MAX_HIGHLIGHTED = 20_000;

/** Code with its language, highlighted once the highlighter is loaded. */
function Code({ language, code }: FencedCode) {
  const [isWrapped, setWrapped] = useState(false);
  const isHighlighted = language !== '' && code.length <= MAX_HIGHLIGHTED;
  const shown = showReordering(code);
  const highlighted = useLoaded(() => highlight(language, shown), [language, shown], isHighlighted);
  return (
    <div className={isWrapped ? 'block is-wrapped' : 'block'}>
      <div className="block-head">
        <span className="grow">{names[language] ?? language}</span>
        <IconButton
          icon="wrap"
          label={t('chat.code.wrap')}
          aria-pressed={isWrapped}
          onClick={() => setWrapped(!isWrapped)}
        />
        <CopyButton text={code} label={t('chat.code.copy')} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard. */}
      <pre tabIndex={0}>
        <code>{(isHighlighted && highlighted) || shown}</code>
      </pre>
    </div>
  );
}

/** Code with a color for each kind of word; plain if the language is not known. */
async function highlight(language: string, code: string): Promise<ReactNode> {
  const { common, createLowlight } = await import('lowlight');
  const { toJsxRuntime } = await import('hast-util-to-jsx-runtime');
  const lowlight = createLowlight(common);
  if (!lowlight.registered(language)) return code;
  return toJsxRuntime(lowlight.highlight(language, code), { Fragment, jsx, jsxs });
}

/** Commands that a formula defines: a short one can become millions of characters. */
const DEFINITION =
  /(?<!\\)(?:\\\\)*\\(?:[egx]?def|(?:future)?let|(?:re)?newcommand|providecommand)(?![a-z@])/i;

/** TeX as MathML, which browsers display without additional fonts or styles; rejects if it defines commands. */
async function toMathMl(tex: string, displayMode: boolean): Promise<string> {
  if (DEFINITION.test(tex)) throw new Error('The formula defines commands');
  const { default: katex } = await import('katex');
  return katex.renderToString(tex, {
    displayMode,
    output: 'mathml',
    throwOnError: true,
    trust: false,
    maxExpand: 200,
    maxSize: 20,
  });
}

/** Characters; a longer formula would take seconds. */
const MAX_TEX = 10_000;

/** Characters; a longer formula within a line may not fit into it, and scrolls. */
const WIDE_TEX = 40;

/** A formula as MathML, or its source until it can be displayed. */
export function Formula({ tex, isBlock = false }: { readonly tex: string; isBlock?: boolean }) {
  const isShort = tex.length <= MAX_TEX;
  const html = useLoaded(() => toMathMl(tex, isBlock), [tex, isBlock], isShort);
  if (html === undefined || !isShort) return <code dir="ltr">{tex}</code>;
  const Element = isBlock ? 'div' : 'span';
  return (
    <Element
      className={isBlock ? 'math' : 'math-inline'}
      dir="ltr"
      // A region that scrolls must be reachable by keyboard.
      tabIndex={isBlock || tex.length > WIDE_TEX ? 0 : undefined}
      // KaTeX creates it from TeX and escapes all text.
      dangerouslySetInnerHTML={{ __html: html }}
    />
  );
}

/** A diagram as an image, in which scripts cannot run; its source on demand or if it is not valid. */
function Diagram({ code }: { readonly code: string }) {
  const isDark = useSyncExternalStore(followTheme, isDarkNow);
  const url = useLoaded((isCurrent) => drawDiagram(code, isDark, isCurrent), [code, isDark]);
  const [isSource, setSource] = useState(false);
  useEffect(() => () => void (url && URL.revokeObjectURL(url)), [url]);
  if (url === undefined) return <Code language="mermaid" code={code} />;
  return (
    <figure className="block">
      <div className="block-head">
        <figcaption className="grow">{t('chat.diagram')}</figcaption>
        <IconButton
          icon="words"
          label={t('chat.diagram.source')}
          aria-pressed={isSource}
          onClick={() => setSource(!isSource)}
        />
        <CopyButton text={code} label={t('chat.code.copy')} />
      </div>
      {isSource ? (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard.
        <pre tabIndex={0}>{showReordering(code)}</pre>
      ) : (
        <div className={isDark ? 'diagram is-dark' : 'diagram'}>
          <img src={url} alt={t('chat.diagram.alt', { source: code.slice(0, 500) })} />
        </div>
      )}
    </figure>
  );
}

/** The result of the newest call; undefined while it loads and if it fails. */
function useLoaded<T>(
  load: (isCurrent: () => boolean) => Promise<T>,
  inputs: readonly unknown[],
  isNeeded = true,
): T | undefined {
  const [value, setValue] = useState<T>();
  useEffect(() => {
    if (!isNeeded) return;
    let isCurrent = true;
    load(() => isCurrent).then(
      (loaded) => isCurrent && setValue(() => loaded),
      // The source is shown instead.
      () => isCurrent && setValue(undefined),
    );
    return () => {
      isCurrent = false;
    };
  }, inputs);
  return value;
}

const prefersDark = matchMedia('(prefers-color-scheme: dark)');

function isDarkNow(): boolean {
  const { theme } = document.documentElement.dataset;
  return theme === 'dark' || (theme !== 'light' && prefersDark.matches);
}

function followTheme(listener: () => void): () => void {
  const observer = new MutationObserver(listener);
  observer.observe(document.documentElement, { attributeFilter: ['data-theme'] });
  prefersDark.addEventListener('change', listener);
  return () => {
    observer.disconnect();
    prefersDark.removeEventListener('change', listener);
  };
}

let count = 0;
let lastDrawn: Promise<unknown> = Promise.resolve();

/**
 * Draws a diagram and returns the address of an image; rejects if the source is not valid. One after the other, since
 * Mermaid's diagrams share state; without those that have changed in the meantime.
 */
function drawDiagram(code: string, isDark: boolean, isCurrent: () => boolean): Promise<string> {
  const draw = async () => {
    if (!isCurrent()) throw new Error('The diagram has changed');
    return drawNow(code, isDark);
  };
  const drawn = lastDrawn.then(draw, draw);
  lastDrawn = drawn;
  return drawn;
}

/** Statements of a diagram; to draw thousands takes minutes, in which the page does nothing else. */
const MAX_STATEMENTS = 300;
const countStatements = (code: string) => code.split(/[\n;&]/).length;

async function drawNow(code: string, isDark: boolean): Promise<string> {
  if (countStatements(code) > MAX_STATEMENTS) throw new Error('The diagram is too large');
  const { default: mermaid } = await import('mermaid');
  const { defaultConfig, getDiagramFromText } = mermaid.mermaidAPI;
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: 'strict',
    theme: isDark ? 'dark' : 'neutral',
    fontFamily: 'sans-serif',
    suppressErrorRendering: true,
    // HTML inside an image is not displayed, but would load the images in it.
    htmlLabels: false,
    flowchart: { htmlLabels: false },
    secure: [...(defaultConfig.secure ?? []), 'htmlLabels'],
  });
  if (loadsImages(await getDiagramFromText(code))) throw new Error('The diagram loads images');
  count += 1;
  const { svg } = await mermaid.render(`diagram-${count}`, code);
  return URL.createObjectURL(new Blob([setSize(svg)], { type: 'image/svg+xml' }));
}

/** What Mermaid loads while it draws: images of nodes, and icons of participants. */
interface ImageSources {
  getData?(): { readonly nodes?: readonly { readonly img?: string }[] };
  getActors?(): unknown;
}

/** Whether drawing sends requests to servers of the model's choice. */
function loadsImages({ db }: { readonly db: object }): boolean {
  const sources: ImageSources = db;
  const actors = sources.getActors?.();
  const participants: { readonly properties?: { readonly icon?: string } }[] =
    actors instanceof Map ? [...actors.values()] : [];
  return (
    participants.some(({ properties }) => properties?.icon) ||
    (sources.getData?.().nodes?.some(({ img }) => img) ?? false)
  );
}

/** An image needs its own size. */
function setSize(svg: string): string {
  const [, width, height] = /viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"/.exec(svg) ?? [];
  return width ? svg.replace('width="100%"', `width="${width}" height="${height}"`) : svg;
}
