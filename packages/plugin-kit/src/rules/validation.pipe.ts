import { type ArgumentMetadata, Injectable, type PipeTransform } from '@nestjs/common';
import { OracleError } from '@sibyl/protocol';

/** More than anybody mends at once; a request can be wrong in a hundred thousand places. */
const MOST_LINES = 20;
const LONGEST_LINE = 300;

interface Issue {
  readonly message: string;
  readonly path?: ReadonlyArray<PropertyKey | { readonly key: PropertyKey }> | undefined;
  readonly code?: string;
  readonly keys?: readonly string[];
}

/** Checks every argument against the schema its decorator names; each fault names its field. */
@Injectable()
export class ValidationPipe implements PipeTransform {
  async transform(value: unknown, { schema, type, data }: ArgumentMetadata): Promise<unknown> {
    if (!schema || type === 'custom') return value;
    const result = await schema['~standard'].validate(value);
    if (!result.issues) return result.value;
    const lines = (result.issues as readonly Issue[]).flatMap((issue) =>
      linesOf(issue, data ?? type),
    );
    throw new OracleError('validation_failed', { message: shortened(lines) });
  }
}

function shortened(lines: readonly string[]): string[] {
  const told = lines.slice(0, MOST_LINES).map((line) => line.slice(0, LONGEST_LINE));
  const more = lines.length - told.length;
  return more > 0 ? [...told, `and ${more} more`] : told;
}

function linesOf(issue: Issue, argument: string): string[] {
  const path = (issue.path ?? []).map((step) => String(typeof step === 'object' ? step.key : step));
  if (issue.code === 'unrecognized_keys')
    return (issue.keys ?? []).map((key) => `${[...path, key].join('.')}: unknown field`);
  return [`${path.join('.') || argument}: ${issue.message}`];
}
