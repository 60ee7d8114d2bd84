import type { DescField } from '@bufbuild/protobuf';
import { formOf, isNullable } from '../../descriptors/field-form.js';
import { asValue, MessageDraft, type WireValue } from '../message-draft.js';
import { textValue } from '../scalars.js';
import { timeValue } from '../time-value.js';

/** Go's zero time, in the year 1. */
const YEAR_1 = { seconds: -62_135_596_800n, nanos: 0 };

/**
 * Adds what Go sends even when it is not set. The bytes of a message inside an Any are kept as they are,
 * and are signed, so they have to be those that Go makes.
 */
export function fillNonNullable(draft: MessageDraft): void {
  for (const field of draft.type.fields) {
    if (field.fieldKind === 'list' || field.fieldKind === 'map' || field.oneof) continue;
    if (draft.has(field) || isNullable(field)) continue;
    const zero = zeroOf(field);
    if (zero) draft.set(field, zero);
  }
}

function zeroOf(field: DescField): WireValue | undefined {
  switch (formOf(field)) {
    case 'std_time':
      return timeValue(YEAR_1);
    case 'integer':
    case 'decimal':
      return textValue('0');
    default:
      if (!field.message) return undefined;
      return emptyMessage(field.message);
  }
}

function emptyMessage(type: NonNullable<DescField['message']>): WireValue {
  const draft = new MessageDraft(type);
  fillNonNullable(draft);
  return asValue(draft);
}
