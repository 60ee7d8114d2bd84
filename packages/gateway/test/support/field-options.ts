import { type DescField, getOption, hasOption, type Registry } from '@bufbuild/protobuf';

/** What gogoproto says about a field, read apart from the gateway's own reading. */
export interface GoOptions {
  readonly isNullable: boolean;
  readonly customtype: string;
}

export function readGoOptions(registry: Registry, field: DescField): GoOptions {
  const read = (name: string): unknown => {
    const extension = registry.getExtension(`gogoproto.${name}`);
    if (!extension) throw new Error(`gogoproto.${name} is not declared`);
    return hasOption(field, extension) ? getOption(field, extension) : undefined;
  };
  return {
    isNullable: read('nullable') !== false,
    customtype: String(read('customtype') ?? ''),
  };
}
