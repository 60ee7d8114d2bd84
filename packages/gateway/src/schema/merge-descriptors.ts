import type { DescriptorProto, FileDescriptorProto } from '@bufbuild/protobuf/wkt';

interface Fitting {
  readonly fitting: readonly FileDescriptorProto[];
  /** Log messages about files that do not fit. */
  readonly notices: readonly string[];
}

/**
 * Of other files, selects those that can be added to the given ones: they declare nothing again, and all types they
 * refer to are declared. Versions of a library differ, so a file may refer to a type that only its own version has.
 */
export function selectFitting(
  given: readonly FileDescriptorProto[],
  others: readonly FileDescriptorProto[],
): Fitting {
  const names = new Set(given.map(({ name }) => name));
  const declared = new Set(given.flatMap(listDeclared));
  const notices: string[] = [];
  let fitting = others.filter((file) => {
    if (names.has(file.name)) return false;
    const again = listDeclared(file).find((name) => declared.has(name));
    if (again) notices.push(`${file.name} is not used: it declares ${again} again`);
    return !again;
  });
  for (;;) {
    const known = new Set([...declared, ...fitting.flatMap(listDeclared)]);
    const kept = fitting.filter((file) => {
      const missing = listReferences(file).find((name) => !known.has(name));
      if (missing) notices.push(`${file.name} is not used: ${missing} is not declared`);
      return !missing;
    });
    if (kept.length === fitting.length) return { fitting, notices };
    fitting = kept;
  }
}

/** Full names of the messages, enums and services of a file. */
function listDeclared(file: FileDescriptorProto): string[] {
  const prefix = file.package === '' ? '' : `${file.package}.`;
  return [
    ...file.messageType.flatMap((message) => listNested(message, prefix)),
    ...[...file.enumType, ...file.service].map(({ name }) => prefix + name),
  ];
}

function listNested(message: DescriptorProto, prefix: string): string[] {
  const name = prefix + message.name;
  return [
    name,
    ...message.nestedType.flatMap((nested) => listNested(nested, `${name}.`)),
    ...message.enumType.map((nested) => `${name}.${nested.name}`),
  ];
}

/** Full names of the types that a file refers to. */
function listReferences(file: FileDescriptorProto): string[] {
  const ofMessage = (message: DescriptorProto): string[] => [
    ...message.field.map(({ typeName }) => typeName),
    ...message.extension.flatMap(({ typeName, extendee }) => [typeName, extendee]),
    ...message.nestedType.flatMap(ofMessage),
  ];
  return [
    ...file.messageType.flatMap(ofMessage),
    ...file.extension.flatMap(({ typeName, extendee }) => [typeName, extendee]),
    ...file.service.flatMap(({ method }) =>
      method.flatMap((one) => [one.inputType, one.outputType]),
    ),
  ].flatMap((name) => (name === '' ? [] : [name.replace(/^\./, '')]));
}
