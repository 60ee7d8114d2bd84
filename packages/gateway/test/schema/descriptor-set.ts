import { create, toBinary, type UnknownField } from '@bufbuild/protobuf';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import {
  DescriptorProtoSchema,
  EnumDescriptorProtoSchema,
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FieldDescriptorProtoSchema,
  FieldOptionsSchema,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
  MethodDescriptorProtoSchema,
  MethodOptionsSchema,
  ServiceDescriptorProtoSchema,
} from '@bufbuild/protobuf/wkt';
import { type Facts, type FieldFact, type MethodFact, toMapType } from './facts.js';
import { type Wire, wire } from './wire.js';

const WELL_KNOWN = ['any', 'duration', 'field_mask', 'struct', 'timestamp', 'wrappers'];
const HTTP_RULE = 72295728;
const VERB_FIELDS = { get: 2, put: 3, post: 4, delete: 5, patch: 6 };

/** The bytes of a FileDescriptorSet that declares the facts, one file for each package. */
export function descriptorSet(facts: Facts): Uint8Array {
  const set = create(FileDescriptorSetSchema, { file: descriptorFiles(facts) });
  return toBinary(FileDescriptorSetSchema, set);
}

/** The same, file by file. */
export function descriptorFiles({ messages, enums = {}, services = {} }: Facts) {
  const names = [enums, messages, services].flatMap((named) => Object.keys(named));
  return [...new Set(names.map(buildPackage))].map((name) =>
    create(FileDescriptorProtoSchema, {
      name: fileName(name),
      package: name,
      syntax: 'proto3',
      dependency: [
        ...usedPackages({ messages, services }, name).map(fileName),
        ...WELL_KNOWN.map((file) => `google/protobuf/${file}.proto`),
      ],
      messageType: within(messages, name).map(([type, fields]) =>
        buildMessage(type, fields, enums),
      ),
      enumType: within(enums, name).map(([type, values]) => buildEnum(type, values)),
      service: within(services, name).map(([type, methods]) => buildService(type, methods)),
    }),
  );
}

/** The other packages whose types a package names. */
function usedPackages({ messages, services = {} }: Facts, name: string): string[] {
  const types = [
    ...within(messages, name).flatMap(([, fields]) =>
      fields.map(({ type }) => toMapType(type)?.value ?? type),
    ),
    ...within(services, name).flatMap(([, methods]) =>
      Object.values(methods).flatMap(({ request, response }) => [request, response]),
    ),
  ];
  const packages = new Set(types.filter((type) => type.includes('.')).map(buildPackage));
  return [...packages].filter((used) => used !== name && used !== 'google.protobuf');
}

function within<T>(named: Readonly<Record<string, T>>, name: string): [string, T][] {
  return Object.entries(named).filter(([type]) => buildPackage(type) === name);
}

function buildPackage(type: string): string {
  return type.slice(0, type.lastIndexOf('.'));
}

function shortName(type: string): string {
  return type.slice(type.lastIndexOf('.') + 1);
}

function fileName(name: string): string {
  return `${name.replaceAll('.', '/')}/all.proto`;
}

function buildMessage(
  type: string,
  fields: readonly FieldFact[],
  enums: NonNullable<Facts['enums']>,
) {
  const oneofs = [...new Set(fields.flatMap(({ oneof }) => oneof ?? []))];
  const optionals = fields.filter(({ optional }) => optional).map(({ name }) => `_${name}`);
  const maps = fields.flatMap((field) =>
    toMapType(field.type) ? [buildMapEntry(field, enums)] : [],
  );
  return create(DescriptorProtoSchema, {
    name: shortName(type),
    nestedType: maps,
    oneofDecl: [...oneofs, ...optionals].map((name) => ({ name })),
    field: fields.map((field) => buildField(type, field, [...oneofs, ...optionals], enums)),
  });
}

function buildField(
  parent: string,
  fact: FieldFact,
  oneofs: readonly string[],
  enums: NonNullable<Facts['enums']>,
) {
  const isMap = toMapType(fact.type) !== undefined;
  const group = fact.oneof ?? (fact.optional ? `_${fact.name}` : undefined);
  return create(FieldDescriptorProtoSchema, {
    ...toType(isMap ? `${parent}.${entryName(fact)}` : fact.type, enums),
    name: fact.name,
    number: fact.no,
    jsonName: fact.name.replace(/_+(\w)/g, (_, letter: string) => letter.toUpperCase()),
    label:
      fact.repeated || isMap
        ? FieldDescriptorProto_Label.REPEATED
        : FieldDescriptorProto_Label.OPTIONAL,
    options: fieldOptions(fact),
    ...(group && { oneofIndex: oneofs.indexOf(group) }),
    ...(fact.optional && { proto3Optional: true }),
  });
}

function toType(type: string, enums: NonNullable<Facts['enums']>) {
  const { MESSAGE, ENUM } = FieldDescriptorProto_Type;
  if (type in enums || type === 'google.protobuf.NullValue')
    return { type: ENUM, typeName: `.${type}` };
  if (type.includes('.')) return { type: MESSAGE, typeName: `.${type}` };
  const name = type.toUpperCase() as keyof typeof FieldDescriptorProto_Type;
  return { type: FieldDescriptorProto_Type[name] };
}

function entryName(fact: FieldFact): string {
  const camel = fact.name.replace(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase());
  return `${camel}Entry`;
}

function buildMapEntry(fact: FieldFact, enums: NonNullable<Facts['enums']>) {
  const { key = '', value = '' } = toMapType(fact.type) ?? {};
  return create(DescriptorProtoSchema, {
    name: entryName(fact),
    options: { mapEntry: true },
    field: [
      { name: 'key', number: 1, label: FieldDescriptorProto_Label.OPTIONAL, ...toType(key, enums) },
      {
        name: 'value',
        number: 2,
        label: FieldDescriptorProto_Label.OPTIONAL,
        ...toType(value, enums),
      },
    ],
  });
}

function buildEnum(type: string, values: Readonly<Record<string, string>>) {
  return create(EnumDescriptorProtoSchema, {
    name: shortName(type),
    value: Object.entries(values).map(([number, name]) => ({ name, number: Number(number) })),
  });
}

function buildService(type: string, methods: Readonly<Record<string, MethodFact>>) {
  return create(ServiceDescriptorProtoSchema, {
    name: shortName(type),
    method: Object.entries(methods).map(([name, method]) =>
      create(MethodDescriptorProtoSchema, {
        name,
        inputType: `.${method.request}`,
        outputType: `.${method.response}`,
        serverStreaming: method.streams ?? false,
        options: methodOptions(method),
      }),
    ),
  });
}

function methodOptions({ path, verb = 'get', body, otherPath }: MethodFact) {
  const rule = wire().text(VERB_FIELDS[verb], path);
  if (body) rule.text(7, body);
  if (otherPath) rule.message(11, wire().text(VERB_FIELDS.get, otherPath));
  const options = create(MethodOptionsSchema);
  options.$unknown = unknownFields(wire().message(HTTP_RULE, rule));
  return options;
}

function fieldOptions(fact: FieldFact) {
  const extensions = wire();
  if (fact.nullable !== undefined) extensions.varint(65001, fact.nullable ? 1 : 0);
  if (fact.customtype) extensions.text(65003, fact.customtype);
  if (fact.casttype) extensions.text(65007, fact.casttype);
  if (fact.stdtime) extensions.varint(65010, 1);
  if (fact.stdduration) extensions.varint(65011, 1);
  const options = create(FieldOptionsSchema, { deprecated: fact.deprecated ?? false });
  options.$unknown = unknownFields(extensions);
  return options;
}

function unknownFields(message: Wire): UnknownField[] {
  const reader = new BinaryReader(message.finish());
  const fields: UnknownField[] = [];
  while (reader.pos < reader.len) {
    const [no, wireType] = reader.tag();
    fields.push({ no, wireType, data: reader.skip(wireType, no) });
  }
  return fields;
}
