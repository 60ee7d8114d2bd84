import { type DescField, ScalarType } from '@bufbuild/protobuf';
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt';
import { extensionFlag, extensionText } from './extension-options.js';

/** Extensions of field options from gogo.proto. They decide the Go type, and with it the JSON. */
const NULLABLE = 65001;
const CUSTOM_TYPE = 65003;
const CAST_TYPE = 65007;
const STD_TIME = 65010;
const STD_DURATION = 65011;

/**
 * What a field's value stands for beyond its type: `decimal` is an integer times 10^-18, `integer` a
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

export function formOf(field: DescField): FieldForm {
  const { options } = field.proto;
  if (field.message) {
    if (extensionFlag(options, STD_TIME)) return 'std_time';
    return extensionFlag(options, STD_DURATION) ? 'std_duration' : 'plain';
  }
  if (field.scalar !== ScalarType.STRING && field.scalar !== ScalarType.BYTES) return 'plain';
  const custom = CUSTOM_FORMS.get(typeName(extensionText(options, CUSTOM_TYPE)));
  if (custom) return custom;
  if (field.scalar !== ScalarType.BYTES) return 'plain';
  return CAST_FORMS.get(typeName(extensionText(options, CAST_TYPE))) ?? 'plain';
}

/** Whether Go may hold the field, or an item of it, by a pointer. */
export function isNullable(field: DescField): boolean {
  return extensionFlag(field.proto.options, NULLABLE) !== false;
}

/** Whether Go holds a single field by a pointer, so that it can be absent. */
export function isPointer(field: DescField): boolean {
  if (!isNullable(field)) return false;
  if (field.message || isBigNumber(field)) return true;
  const isExplicit = field.presence !== FeatureSet_FieldPresence.IMPLICIT;
  return isExplicit && field.scalar !== ScalarType.BYTES;
}

/** Whether the value is a number of any size, as text. */
export function isBigNumber(field: DescField): boolean {
  return ['integer', 'decimal'].includes(formOf(field));
}

/** `cosmossdk.io/math.Int` and the older `github.com/cosmos/cosmos-sdk/types.Int` are both `Int`. */
function typeName(goType: string | undefined): string {
  return goType?.slice(goType.lastIndexOf('.') + 1) ?? '';
}
