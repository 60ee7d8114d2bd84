import type { Registry } from '@bufbuild/protobuf';
import { BindFault } from '../bind-fault.js';
import { fieldNamed } from '../field-path.js';
import type { MessageDraft } from '../message-draft.js';
import { JsonBinder } from './json-binder.js';
import { readJson } from './json-node.js';

/** Puts the JSON of a body into the message, or into the one field that takes it. */
export function bindBody(
  draft: MessageDraft,
  target: string,
  body: Uint8Array | undefined,
  registry: Registry,
): void {
  if (!body || body.length === 0) return;
  const json = readJson(body);
  const binder = new JsonBinder(registry);
  if (target === '*') {
    binder.bindMembers(draft, json, '');
    return;
  }
  const field = fieldNamed(draft.type, target);
  if (!field) throw new BindFault(target, `takes the body, but is not in ${draft.type.typeName}`);
  binder.bindField(draft, field, json, target);
}
