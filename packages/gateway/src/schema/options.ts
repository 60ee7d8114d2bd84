import {
  type DescField,
  type DescMessage,
  type DescMethod,
  ScalarType,
  type UnknownField,
} from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt';

/** Extensions of field options from gogo.proto. They decide the Go type, and with it the JSON. */
const NULLABLE = 65001;
const CUSTOM_TYPE = 65003;
const CAST_TYPE = 65007;
const STD_TIME = 65010;
const STD_DURATION = 65011;

/**
 * The meaning of a field's value beyond its type: `decimal` is an integer times 10^-18, `integer` a
 * number of any size as text, `hex` and `raw_json` are bytes, `std_time` and `std_duration` Go's own
 * types for a Timestamp and a Duration.
 */
export type FieldForm =
  | 'plain'
  | 'decimal'
  | 'integer'
  | 'hex'
  | 'raw_json'
  | 'std_time'
  | 'std_duration';

const CUSTOM_FORMS = new Map<string, FieldForm>([
  ['Int', 'integer'],
  ['Uint', 'integer'],
  ['LegacyDec', 'decimal'],
  ['Dec', 'decimal'],
]);

const CAST_FORMS = new Map<string, FieldForm>([
  ['HexBytes', 'hex'],
  ['RawContractMessage', 'raw_json'],
  ['RawMessage', 'raw_json'],
]);

export function getFieldForm(field: DescField): FieldForm {
  const { options } = field.proto;
  if (field.message) {
    if (readExtensionFlag(options, STD_TIME)) return 'std_time';
    return readExtensionFlag(options, STD_DURATION) ? 'std_duration' : 'plain';
  }
  if (field.scalar !== ScalarType.STRING && field.scalar !== ScalarType.BYTES) return 'plain';
  const custom = CUSTOM_FORMS.get(typeName(readExtensionText(options, CUSTOM_TYPE)));
  if (custom) return custom;
  if (field.scalar !== ScalarType.BYTES) return 'plain';
  return CAST_FORMS.get(typeName(readExtensionText(options, CAST_TYPE))) ?? 'plain';
}

/** Whether the Go type of the field, or of its items, is a pointer. */
export function isNullable(field: DescField): boolean {
  return readExtensionFlag(field.proto.options, NULLABLE) !== false;
}

/** Whether the Go type of a single field is a pointer, so that it can be absent. */
export function isPointer(field: DescField): boolean {
  if (!isNullable(field)) return false;
  if (field.message || isBigNumber(field)) return true;
  const isExplicit = field.presence !== FeatureSet_FieldPresence.IMPLICIT;
  return isExplicit && field.scalar !== ScalarType.BYTES;
}

/** Whether the value is a number of any size, as text. */
export function isBigNumber(field: DescField): boolean {
  return ['integer', 'decimal'].includes(getFieldForm(field));
}

/** `cosmossdk.io/math.Int` and the older `github.com/cosmos/cosmos-sdk/types.Int` are both `Int`. */
function typeName(goType: string | undefined): string {
  return goType?.slice(goType.lastIndexOf('.') + 1) ?? '';
}

/**
 * How a message is written in JSON: `fields` as an object, `only_member` as the value of its one field
 * or oneof, the others in a special form.
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

export function getMessageForm(message: DescMessage): MessageForm {
  if (!message.typeName.startsWith(PACKAGE)) return 'fields';
  return FORMS.get(message.typeName.slice(PACKAGE.length)) ?? 'fields';
}

export type HttpMethod = 'GET' | 'PUT' | 'POST' | 'DELETE' | 'PATCH';

/** One HTTP binding of a gRPC method. */
export interface HttpBinding {
  readonly httpMethod: HttpMethod;
  readonly template: string;
  /** `*` for the whole request, the name of a field, or empty for none. */
  readonly body: string;
}

/** The extension `google.api.http` of method options, and the fields of its `HttpRule`. */
const HTTP_RULE = 72295728;
const METHOD_FIELDS: Readonly<Record<number, HttpMethod>> = {
  2: 'GET',
  3: 'PUT',
  4: 'POST',
  5: 'DELETE',
  6: 'PATCH',
};
const BODY_FIELD = 7;
const ADDITIONAL_BINDINGS_FIELD = 11;

export function readHttpBindings(method: DescMethod): HttpBinding[] {
  return readExtensionBytes(method.proto.options, HTTP_RULE).flatMap(readRule);
}

function readRule(rule: Uint8Array): HttpBinding[] {
  const reader = new BinaryReader(rule);
  const additional: HttpBinding[] = [];
  let main: Pick<HttpBinding, 'httpMethod' | 'template'> | undefined;
  let body = '';
  while (reader.pos < reader.len) {
    const [number, wireType] = reader.tag();
    const httpMethod = METHOD_FIELDS[number];
    if (httpMethod) main = { httpMethod, template: reader.string() };
    else if (number === BODY_FIELD) body = reader.string();
    else if (number === ADDITIONAL_BINDINGS_FIELD) additional.push(...readRule(reader.bytes()));
    else reader.skip(wireType, number);
  }
  return main ? [{ ...main, body }, ...additional] : additional;
}

/** Field numbers on the path from a file descriptor to a method. */
const SERVICES = 6;
const METHODS = 2;

/** The first paragraph of a method's leading comment, or its name if the descriptors have no comments. */
export function readSummary(method: DescMethod): string {
  const { file } = method.parent;
  const path = [
    SERVICES,
    file.services.indexOf(method.parent),
    METHODS,
    method.parent.methods.indexOf(method),
  ];
  const location = file.proto.sourceCodeInfo?.location.find(
    (location) =>
      location.path.length === path.length && path.every((step, i) => location.path[i] === step),
  );
  const [paragraph = ''] = (location?.leadingComments ?? '').trim().split(/\n\s*\n/);
  return paragraph.replace(/\s+/g, ' ') || method.name;
}

/** Options of a descriptor; extensions are kept as unknown fields. */
interface Options {
  readonly $unknown?: UnknownField[] | undefined;
}

const utf8 = new TextDecoder();

/** All values of an extension that holds text or a message, in order. */
export function readExtensionBytes(options: Options | undefined, number: number): Uint8Array[] {
  const fields = options?.$unknown ?? [];
  return fields
    .filter((field) => field.no === number && field.wireType === WireType.LengthDelimited)
    .map((field) => new BinaryReader(field.data).bytes());
}

export function readExtensionText(
  options: Options | undefined,
  number: number,
): string | undefined {
  const last = readExtensionBytes(options, number).at(-1);
  return last && utf8.decode(last);
}

export function readExtensionFlag(
  options: Options | undefined,
  number: number,
): boolean | undefined {
  const last = options?.$unknown?.findLast(
    (field) => field.no === number && field.wireType === WireType.Varint,
  );
  return last && new BinaryReader(last.data).bool();
}
