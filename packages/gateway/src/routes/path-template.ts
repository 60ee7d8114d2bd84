import { decodePercent } from '../binding/go-url.js';
import { DescriptorError } from '../schema/descriptors.js';

/** What one step of a path must be: a text, any one segment, or any number of them. */
export type Step = { readonly text: string } | 'one' | 'many';

interface Variable {
  readonly name: string;
  /** The steps it spans. */
  readonly from: number;
  readonly to: number;
}

const VARIABLE = /^\{([^{}=]+)(?:=([^{}]+))?\}$/;
const SPLIT = /\/(?![^{]*\})/;

/** The path of an HTTP binding, such as `/ixo/entity/{id}` or `/denom_traces/{hash=**}`. */
export class PathTemplate {
  readonly text: string;
  readonly steps: readonly Step[];
  private readonly spans: readonly Variable[];
  /** Which step is any number of segments; -1 if none is. */
  private readonly many: number;

  constructor(text: string) {
    if (!text.startsWith('/'))
      throw new DescriptorError(`The path ${text} does not start with a slash`);
    const steps: Step[] = [];
    const variables: Variable[] = [];
    for (const part of text.slice(1).split(SPLIT)) {
      const [, name, pattern = '*'] = VARIABLE.exec(part) ?? [];
      const from = steps.length;
      steps.push(...(name ? pattern.split('/') : [part]).map((step) => toStep(step, text)));
      if (name) variables.push({ name, from, to: steps.length });
    }
    if (steps.filter((step) => step === 'many').length > 1)
      throw new DescriptorError(`The path ${text} has more than one **`);
    this.text = text;
    this.steps = steps;
    this.spans = variables;
    this.many = steps.indexOf('many');
  }

  get variables(): string[] {
    return this.spans.map(({ name }) => name);
  }

  /** The variables' values in a path that matches, given as decoded segments. */
  read(segments: readonly string[]): Map<string, string> {
    const values = new Map<string, string>();
    for (const span of this.spans) values.set(span.name, this.readSpan(span, segments));
    return values;
  }

  private readSpan({ from, to }: Variable, segments: readonly string[]): string {
    const { many } = this;
    if (many === -1 && to === from + 1) return segments[from] ?? '';
    const extra = segments.length - this.steps.length;
    const place = (step: number) => (many !== -1 && step > many ? step + extra : step);
    return segments.slice(place(from), place(to)).join('/');
  }

  /** The path with the variables' values in it. */
  fill(params: ReadonlyMap<string, string>): string {
    return this.text.replace(
      /\{([^{}=]+)(?:=([^{}]+))?\}/g,
      (_, name: string, pattern?: string) => {
        const value = params.get(name) ?? '';
        const deps = pattern === undefined ? [value] : value.split('/');
        return deps.map(encodeSegment).join('/');
      },
    );
  }
}

function toStep(step: string, template: string): Step {
  if (step === '*') return 'one';
  if (step === '**') return 'many';
  if (/^[^{}*:]+$/.test(step)) return { text: step };
  throw new DescriptorError(`The path ${template} has an invalid part: ${step}`);
}

/** Colons are common in ids and need no escaping. */
function encodeSegment(segment: string): string {
  return encodeURIComponent(segment).replaceAll('%3A', ':');
}

/** How a path is split: `node` decodes first and keeps a trailing slash, as a node does. */
export type PathReading = 'node' | 'exact';

/** The decoded segments of a raw path; undefined if it is invalid. */
export function splitPath(path: string, reading: PathReading): string[] | undefined {
  if (!path.startsWith('/')) return undefined;
  try {
    if (reading === 'node') return splitNodePath(path);
    const segments = path.slice(1).split('/');
    if (segments.length > 1 && segments.at(-1) === '') segments.pop();
    return segments.map((segment) =>
      segment.includes('%') ? decodeURIComponent(segment) : segment,
    );
  } catch {
    return undefined;
  }
}

/** A last segment that begins with its only colon is a verb without a path. */
const VERB_ONLY = /^:[^:]*$/;

function splitNodePath(path: string): string[] | undefined {
  const segments = decodePercent(path, 'path')?.slice(1).split('/');
  const last = segments?.at(-1) ?? '';
  if (VERB_ONLY.test(last)) return [];
  // To a node, a colon at the end is an empty verb.
  return last.endsWith(':') ? segments?.with(-1, last.slice(0, -1)) : segments;
}

/** The first segment of the paths that are the chain's own, unless configured. */
const CHAIN_PREFIX = 'ixo';

/** The prefix a deployment shows in place of the chain's own, such as `assets=osmosis`. */
export class ChainPrefix {
  private readonly segments: readonly string[];
  private readonly own: string;

  constructor(prefix = CHAIN_PREFIX) {
    const [shown = '', own = CHAIN_PREFIX] = prefix.split('=');
    this.segments = shown.split('/').filter((segment) => segment !== '');
    this.own = own;
  }

  /** A declared path or template as this deployment shows it. */
  show(path: string): string {
    const rest = path.slice(this.own.length + 1);
    if (!path.startsWith(`/${this.own}`) || (rest !== '' && !rest.startsWith('/'))) return path;
    return `/${this.segments.join('/')}${rest}`.replace('//', '/');
  }

  /** Shown segments as the chain declares them; undefined if they have another prefix. */
  declared(segments: readonly string[]): string[] | undefined {
    if (!this.segments.every((segment, i) => segments[i] === segment)) return undefined;
    return [this.own, ...segments.slice(this.segments.length)];
  }
}

/** Bounds on the work for one unknown path. */
const MAX_SEGMENTS = 16;
const MAX_LENGTH = 64;
const MAX_CANDIDATES = 32;
const MOST = 3;

const FITS = { equal: 3, alike: 2, variable: 1, not: 0 };

/** Suggests the most similar templates for an unknown path. */
export class NearestTemplates {
  /** The templates that have a text among their steps. */
  private readonly byText = new Map<string, PathTemplate[]>();

  constructor(templates: readonly PathTemplate[]) {
    for (const template of templates)
      for (const text of new Set(template.steps.flatMap(listTexts))) {
        const others = this.byText.get(text);
        if (others) others.push(template);
        else this.byText.set(text, [template]);
      }
  }

  /** The best first; none if the path has nothing in common with any. */
  find(segments: readonly string[]): PathTemplate[] {
    const path = segments.slice(0, MAX_SEGMENTS).map((segment) => segment.slice(0, MAX_LENGTH));
    return this.candidates(path)
      .map((template) => ({ template, score: likeness(path, template.steps) }))
      .sort((a, b) => b.score - a.score)
      .slice(0, MOST)
      .map(({ template }) => template);
  }

  /** Those that share most texts with the path. */
  private candidates(path: readonly string[]): PathTemplate[] {
    const shared = new Map<PathTemplate, number>();
    for (const text of new Set(path))
      for (const template of this.byText.get(text) ?? [])
        shared.set(template, (shared.get(template) ?? 0) + 1);
    return [...shared]
      .sort(([, a], [, b]) => b - a)
      .slice(0, MAX_CANDIDATES)
      .map(([template]) => template);
  }
}

function listTexts(step: Step): string[] {
  return typeof step === 'object' ? [step.text] : [];
}

/** Similarity by sequence alignment, minus the difference in length. */
function likeness(path: readonly string[], steps: readonly Step[]): number {
  let row = new Array<number>(path.length + 1).fill(0);
  for (const step of steps) {
    const next = [0];
    for (const [i, segment] of path.entries()) {
      const both = (row[i] as number) + fit(step, segment);
      next.push(Math.max(both, row[i + 1] as number, next[i] as number));
    }
    row = next;
  }
  return (row.at(-1) as number) - Math.abs(path.length - steps.length);
}

function fit(step: Step, segment: string): number {
  if (typeof step === 'string') return FITS.variable;
  if (step.text === segment) return FITS.equal;
  return isAlike(step.text, segment) ? FITS.alike : FITS.not;
}

/** Whether two texts differ by at most two letters in one place, such as a typo or a plural. */
function isAlike(a: string, b: string): boolean {
  const shorter = Math.min(a.length, b.length);
  let start = 0;
  while (start < shorter && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < shorter - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  return start + end > 1 && Math.max(a.length, b.length) - start - end <= 2;
}
