import type { Step } from './path-template.js';

/** A branch point of all paths that begin alike. */
interface Node<T> {
  readonly texts: Map<string, Node<T>>;
  one: Node<T> | undefined;
  /** Paths that go on with any number of segments and then these steps. */
  readonly many: { readonly tail: readonly Step[]; readonly end: End<T> }[];
  end: End<T> | undefined;
  /** The earliest declaration below this point. */
  earliest: number;
}

interface End<T> {
  readonly order: number;
  readonly value: T;
}

/** Finds what was added first of all whose steps fit a path. */
export class RouteTree<T> {
  readonly #root: Node<T> = newNode();
  #size = 0;

  add(steps: readonly Step[], value: T): void {
    const end = { order: this.#size, value };
    this.#size += 1;
    let node = this.#root;
    for (const [i, step] of steps.entries()) {
      node.earliest = Math.min(node.earliest, end.order);
      if (step === 'many') {
        node.many.push({ tail: steps.slice(i + 1), end });
        return;
      }
      node = nextNode(node, step);
    }
    node.earliest = Math.min(node.earliest, end.order);
    node.end ??= end;
  }

  find(segments: readonly string[]): T | undefined {
    return search(this.#root, segments, 0, undefined)?.value;
  }
}

function newNode<T>(): Node<T> {
  return { texts: new Map(), one: undefined, many: [], end: undefined, earliest: Infinity };
}

function nextNode<T>(node: Node<T>, step: Exclude<Step, 'many'>): Node<T> {
  if (step === 'one') {
    node.one ??= newNode();
    return node.one;
  }
  const known = node.texts.get(step.text);
  if (known) return known;
  const next = newNode<T>();
  node.texts.set(step.text, next);
  return next;
}

/** The earliest end that fits from here on, if it is earlier than the best so far. */
function search<T>(
  node: Node<T>,
  segments: readonly string[],
  at: number,
  best: End<T> | undefined,
): End<T> | undefined {
  if (best && best.order < node.earliest) return best;
  let found = endsHere(node, segments, at).reduce(earlier, best);
  const segment = segments[at];
  if (segment === undefined) return found;
  const next = node.texts.get(segment);
  if (next) found = search(next, segments, at + 1, found);
  if (node.one && segment !== '') found = search(node.one, segments, at + 1, found);
  return found;
}

/** The ends at this point that fit the rest of the path. */
function endsHere<T>(node: Node<T>, segments: readonly string[], at: number): End<T>[] {
  if (node.many.length === 0 && at < segments.length) return [];
  const ends = node.many.filter(({ tail }) => fitsAtEnd(tail, segments, at)).map(({ end }) => end);
  return node.end && at === segments.length ? [node.end, ...ends] : ends;
}

function earlier<T>(best: End<T> | undefined, end: End<T>): End<T> {
  return best && best.order < end.order ? best : end;
}

function fitsAtEnd(tail: readonly Step[], segments: readonly string[], at: number): boolean {
  const start = segments.length - tail.length;
  if (start < at) return false;
  return tail.every(
    (step, i) => step === 'one' || (step !== 'many' && step.text === segments[start + i]),
  );
}
