import type { DescMessage } from '@bufbuild/protobuf';

/**
 * How a message is written in JSON: `fields` as an object, `only_member` as the value of its one field
 * or oneof, the others in a form of their own.
 */
export type MessageForm = 'fields' | 'any' | 'timestamp' | 'duration' | 'only_member';

const FORMS = new Map<string, MessageForm>([
  ['Any', 'any'],
  ['Timestamp', 'timestamp'],
  ['Duration', 'duration'],
  ['Struct', 'only_member'],
  ['ListValue', 'only_member'],
  ['Value', 'only_member'],
  ...[
    'DoubleValue',
    'FloatValue',
    'Int64Value',
    'UInt64Value',
    'Int32Value',
    'UInt32Value',
    'BoolValue',
    'StringValue',
    'BytesValue',
  ].map((name) => [name, 'only_member'] as const),
]);

const PACKAGE = 'google.protobuf.';

export function messageForm(message: DescMessage): MessageForm {
  if (!message.typeName.startsWith(PACKAGE)) return 'fields';
  return FORMS.get(message.typeName.slice(PACKAGE.length)) ?? 'fields';
}
