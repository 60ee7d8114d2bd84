import type { DescField, DescMessage } from '@bufbuild/protobuf';
import { formOf } from '../descriptors/field-form.js';
import { messageForm } from '../descriptors/message-form.js';
import { ValueFault } from './bind-fault.js';
import { enumNumber } from './enum-numbers.js';
import type { FieldPath } from './field-path.js';
import { asValue, MessageDraft, type WireValue } from './message-draft.js';
import { enumValue, scalarFromText, textValue } from './scalars.js';
import { parseDecimalText, parseIntegerText } from './text/big-numbers.js';
import type { Base64Reading } from './text/bytes.js';
import { parseDuration, parseTimestamp } from './text/times.js';
import { timeValue } from './time-value.js';

/** Puts texts of a URL into the field at the end of a path; a single field takes the first. */
export function bindTexts(
  draft: MessageDraft,
  path: FieldPath,
  texts: readonly string[],
  base64: Base64Reading,
): void {
  const field = path.at(-1) as DescField;
  const parent = path.slice(0, -1).reduce((parent, step) => {
    // A path leads on only through messages, or it would not have been found.
    return parent.child(step as DescField & { message: DescMessage });
  }, draft);
  const values = texts.map((text) => valueFromText(field, text, base64));
  if (field.fieldKind === 'list') {
    parent.clear(field);
    for (const value of values) parent.add(field, value);
  } else parent.set(field, values[0] as WireValue);
}

/** Reads one value of a field from a URL. */
function valueFromText(field: DescField, text: string, base64: Base64Reading): WireValue {
  if (field.fieldKind === 'map') throw new ValueFault('is a map, which a URL cannot carry');
  if (field.message) return messageFromText(field.message, text, base64);
  if (field.enum) return enumValue(enumNumber(field.enum, text));
  switch (formOf(field)) {
    case 'integer':
      return textValue(parseIntegerText(text));
    case 'decimal':
      return textValue(parseDecimalText(text));
    default:
      return scalarFromText(field.scalar, text, base64);
  }
}

function messageFromText(type: DescMessage, text: string, base64: Base64Reading): WireValue {
  switch (messageForm(type)) {
    case 'timestamp':
      return timeValue(text === 'null' ? NO_TIME : parseTimestamp(text));
    case 'duration':
      return timeValue(text === 'null' ? NO_TIME : parseDuration(text));
    case 'only_member':
      return wrapped(type, [text], base64);
    default:
      if (type.typeName === 'google.protobuf.FieldMask')
        return wrapped(type, text.split(','), base64);
      throw new ValueFault('is a message; name one of its fields after a dot');
  }
}

/** A message whose one field holds the texts. */
function wrapped(type: DescMessage, texts: readonly string[], base64: Base64Reading): WireValue {
  const [field] = type.fields;
  if (!field || type.fields.length > 1) throw new ValueFault('is more than a URL can carry');
  const draft = new MessageDraft(type);
  bindTexts(draft, [field], texts, base64);
  return asValue(draft);
}

const NO_TIME = { seconds: 0n, nanos: 0 };
