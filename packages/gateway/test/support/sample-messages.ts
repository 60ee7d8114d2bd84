import type {
  DescField,
  DescMessage,
  DescOneof,
  JsonObject,
  JsonValue,
  Registry,
} from '@bufbuild/protobuf';
import { readGoOptions } from './field-options.js';
import {
  type Pick,
  printAbsent,
  type Sample,
  sampleCustom,
  sampleEnum,
  sampleScalar,
  sampleTime,
} from './sample-values.js';

/** Every field set, some of them, or none. */
export type Fullness = 'full' | 'sparse' | 'empty';

const ABSENT_TIMES: Record<string, string> = {
  'google.protobuf.Timestamp': '"0001-01-01T00:00:00Z"',
  'google.protobuf.Duration': '"0s"',
};

export interface MessageSample {
  readonly wire: JsonObject;
  readonly printed: string;
}

/** Makes messages and, field by field along with them, what a node prints for them. */
export class SampleMessages {
  constructor(
    private readonly registry: Registry,
    private readonly pick: Pick,
  ) {}

  sample(message: DescMessage, fullness: Fullness): MessageSample {
    const wire: Record<string, JsonValue> = {};
    const printed: string[] = [];
    for (const member of message.members) {
      const field = member.kind === 'oneof' ? this.choose(member, fullness) : member;
      if (!field) continue;
      const value = this.isSet(fullness, member) ? this.value(field, fullness) : undefined;
      if (value) wire[field.name] = value.wire;
      printed.push(`"${field.name}":${value?.printed ?? this.absent(field)}`);
    }
    return { wire, printed: `{${printed.join(',')}}` };
  }

  private isSet(fullness: Fullness, { kind }: DescField | DescOneof): boolean {
    // A member of a oneof was chosen because it is set.
    if (kind === 'oneof' || fullness === 'full') return true;
    return fullness === 'sparse' && this.pick([true, false, false]);
  }

  private choose({ fields }: DescOneof, fullness: Fullness): DescField | undefined {
    if (fullness === 'empty') return undefined;
    return fullness === 'full' || this.pick([true, false]) ? this.pick(fields) : undefined;
  }

  private value(field: DescField, fullness: Fullness): Sample {
    if (field.fieldKind !== 'list') return this.single(field, fullness);
    const items = [this.single(field, fullness), this.single(field, fullness)];
    return {
      wire: items.map(({ wire }) => wire),
      printed: `[${items.map(({ printed }) => printed).join(',')}]`,
    };
  }

  private single(field: DescField, fullness: Fullness): Sample {
    const { customtype } = readGoOptions(this.registry, field);
    if (customtype) return sampleCustom(customtype, this.pick);
    if (field.message) {
      return sampleTime(field.message.typeName, this.pick) ?? this.sample(field.message, fullness);
    }
    if (field.enum) return sampleEnum(field.enum, this.pick);
    if (field.scalar === undefined) throw new Error(`${field} is neither message nor scalar`);
    return sampleScalar(field.scalar, this.pick);
  }

  private absent(field: DescField): string {
    const { isNullable, customtype } = readGoOptions(this.registry, field);
    if (field.fieldKind !== 'message') return printAbsent(field, customtype);
    if (isNullable) return 'null';
    return ABSENT_TIMES[field.message.typeName] ?? this.sample(field.message, 'empty').printed;
  }
}
