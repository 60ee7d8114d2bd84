import type { DescMessage, Registry } from '@bufbuild/protobuf';
import { BinaryWriter } from '@bufbuild/protobuf/wire';
import { BindFault, namingField } from './bind-fault.js';
import { bindTexts } from './bind-text.js';
import { type FieldPath, fieldPath } from './field-path.js';
import { bindBody } from './json-body/bind-body.js';
import { MessageDraft } from './message-draft.js';
import { avoidCounting, capPageLimit, pageFieldOf } from './page-rules.js';

/** The parts of an HTTP request that make a gRPC request. */
export interface BindInput {
  /** Decoded values of the path template's variables, by their dotted field path. */
  readonly params: ReadonlyMap<string, string>;
  readonly query: URLSearchParams;
  /** The JSON text of a POST. */
  readonly body?: Uint8Array | undefined;
}

export interface BindRules {
  /** Any types that a body may hold. */
  readonly registry: Registry;
  /** `node` leaves page limits alone and reads base64 as strictly as the node. */
  readonly compat: 'node' | undefined;
  readonly maxPageLimit: number;
}

export interface BoundMessage {
  readonly type: DescMessage;
  readonly variables: readonly string[];
  /** `*` for the whole message, the name of a field, or empty for none. */
  readonly body: string;
}

/** Turns HTTP requests of one route into request messages on the wire. */
export class RequestBinder {
  readonly #message: BoundMessage;
  readonly #rules: BindRules;
  readonly #variables: ReadonlyMap<string, FieldPath>;
  readonly #pageField: ReturnType<typeof pageFieldOf>;

  constructor(message: BoundMessage, rules: BindRules) {
    this.#message = message;
    this.#rules = rules;
    this.#variables = new Map(
      message.variables.map((name) => [name, variablePath(message.type, name)]),
    );
    this.#pageField = rules.compat === 'node' ? undefined : pageFieldOf(message.type);
  }

  /** Whether a query key names a field that neither the path nor the body binds. */
  takesQueryKey(key: string): boolean {
    return this.#queryField(key) !== undefined;
  }

  bind({ params, query, body }: BindInput): Uint8Array {
    const draft = new MessageDraft(this.#message.type);
    if (this.#message.body !== '') bindBody(draft, this.#message.body, body, this.#rules.registry);
    this.#bindParams(draft, params);
    this.#bindQuery(draft, query);
    if (this.#pageField) avoidCounting(draft, this.#pageField, this.#rules.maxPageLimit);
    return written(draft);
  }

  #bindParams(draft: MessageDraft, params: ReadonlyMap<string, string>): void {
    for (const [name, path] of this.#variables) {
      const text = params.get(name) ?? '';
      const texts = path.at(-1)?.fieldKind === 'list' ? text.split(',') : [text];
      namingField(name, () => bindTexts(draft, path, texts, this.#base64));
    }
  }

  #bindQuery(draft: MessageDraft, query: URLSearchParams): void {
    const done = new Set<string>();
    for (const key of query.keys()) {
      const path = done.has(key) ? undefined : this.#queryField(key);
      done.add(key);
      if (path) namingField(key, () => this.#bindKey(draft, path, query.getAll(key)));
    }
  }

  #bindKey(draft: MessageDraft, path: FieldPath, texts: readonly string[]): void {
    const field = path.at(-1);
    const { compat, maxPageLimit } = this.#rules;
    const capped =
      field && compat !== 'node'
        ? texts.map((text) => capPageLimit(field, text, maxPageLimit))
        : texts;
    bindTexts(draft, path, capped, this.#base64);
  }

  /** Unknown keys are not an error to a node, so they are none here. */
  #queryField(key: string): FieldPath | undefined {
    if (this.#message.body === '*') return undefined;
    const path = fieldPath(this.#message.type, key);
    if (!path || path[0].name === this.#message.body) return undefined;
    return [...this.#variables.values()].some((bound) => beginsWith(path, bound))
      ? undefined
      : path;
  }

  get #base64() {
    return this.#rules.compat ?? 'tolerant';
  }
}

/** Kept for the next request, unless writing fails on the way: its buffer is most of what it costs. */
let idle: BinaryWriter | undefined;

function written(draft: MessageDraft): Uint8Array {
  const writer = idle ?? new BinaryWriter();
  idle = undefined;
  draft.write(writer);
  const bytes = writer.finish();
  idle = writer;
  return bytes;
}

function beginsWith(path: FieldPath, bound: FieldPath): boolean {
  return bound.every((field, i) => field === path[i]);
}

function variablePath(type: DescMessage, name: string): FieldPath {
  const path = fieldPath(type, name);
  if (!path) throw new BindFault(name, `is in the path, but not in ${type.typeName}`);
  return path;
}
