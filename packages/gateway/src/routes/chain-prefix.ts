/** The first segment of the paths that are the chain's own. */
const CHAIN_PREFIX = 'ixo';

/** The prefix a deployment shows in place of the chain's own. */
export class ChainPrefix {
  readonly #segments: readonly string[];

  constructor(prefix = CHAIN_PREFIX) {
    this.#segments = prefix.split('/').filter((segment) => segment !== '');
  }

  /** A declared path or template as this deployment shows it. */
  show(path: string): string {
    const rest = path.slice(CHAIN_PREFIX.length + 1);
    if (!path.startsWith(`/${CHAIN_PREFIX}`) || (rest !== '' && !rest.startsWith('/'))) return path;
    return `/${this.#segments.join('/')}${rest}`.replace('//', '/');
  }

  /** Shown segments as the chain declares them; undefined if they have another prefix. */
  declared(segments: readonly string[]): string[] | undefined {
    if (!this.#segments.every((segment, i) => segments[i] === segment)) return undefined;
    return [CHAIN_PREFIX, ...segments.slice(this.#segments.length)];
  }
}
