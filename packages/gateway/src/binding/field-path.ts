import type { DescField, DescMessage } from '@bufbuild/protobuf';

/** The fields a dotted path names, outermost first. */
export type FieldPath = readonly [DescField, ...DescField[]];

const names = new WeakMap<DescMessage, ReadonlyMap<string, DescField>>();

/** A message's field by its name or its lowerCamel name. */
export function fieldNamed(type: DescMessage, name: string): DescField | undefined {
  let fields = names.get(type);
  if (!fields) {
    fields = new Map([
      ...type.fields.map((field) => [field.jsonName, field] as const),
      ...type.fields.map((field) => [field.name, field] as const),
    ]);
    names.set(type, fields);
  }
  return fields.get(name);
}

/** Follows a dotted path into a message; undefined if a field on the way is not there. */
export function fieldPath(type: DescMessage, path: string): FieldPath | undefined {
  const found: DescField[] = [];
  let within: DescMessage | undefined = type;
  for (const name of path.split('.')) {
    const field: DescField | undefined = within && fieldNamed(within, name);
    if (!field) return undefined;
    found.push(field);
    within = field.fieldKind === 'message' ? field.message : undefined;
  }
  const [first, ...rest] = found;
  return first && [first, ...rest];
}
