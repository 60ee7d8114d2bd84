import type { DescField, DescMessage } from '@bufbuild/protobuf';
import { fieldNamed } from './field-path.js';
import type { MessageDraft } from './message-draft.js';
import { scalarFromText } from './scalars.js';
import { parseInteger, UINT64 } from './text/numbers.js';

const PAGE_REQUEST = 'cosmos.base.query.v1beta1.PageRequest';

/** What a node takes when no limit is given; but then it also counts all there is. */
const DEFAULT_LIMIT = 100;

type PageField = DescField & { readonly fieldKind: 'message'; readonly message: DescMessage };

/** The field by which a request asks for a page, if it has one. */
export function pageFieldOf(type: DescMessage): PageField | undefined {
  return type.fields.find(
    (field): field is PageField =>
      field.fieldKind === 'message' && field.message.typeName === PAGE_REQUEST && !field.deprecated,
  );
}

/** Lowers a page's limit to the largest that is allowed. */
export function capPageLimit(field: DescField, text: string, max: number): string {
  if (field.name !== 'limit' || field.parent.typeName !== PAGE_REQUEST) return text;
  return parseInteger(text, UINT64) > BigInt(max) ? String(max) : text;
}

/** Names the node's own limit where none was given, so that it does not count what nobody asked for. */
export function avoidCounting(draft: MessageDraft, pageField: PageField, max: number): void {
  const limit = fieldNamed(pageField.message, 'limit');
  const countTotal = fieldNamed(pageField.message, 'count_total');
  if (!limit?.scalar || !countTotal) return;
  const page = draft.child(pageField);
  if (page.has(limit) || page.has(countTotal)) return;
  page.set(limit, scalarFromText(limit.scalar, String(Math.min(DEFAULT_LIMIT, max)), 'node'));
}
