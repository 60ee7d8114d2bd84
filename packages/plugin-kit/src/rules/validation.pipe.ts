import { type ArgumentMetadata, Injectable, type PipeTransform } from '@nestjs/common';
import { describeIssues, OracleError } from '@sibyl/protocol';

/** Checks every argument against the schema its decorator names; each fault names its field. */
@Injectable()
export class ValidationPipe implements PipeTransform {
  async transform(value: unknown, { schema, type, data }: ArgumentMetadata): Promise<unknown> {
    if (!schema || type === 'custom') return value;
    const result = await schema['~standard'].validate(value);
    if (!result.issues) return result.value;
    const message = describeIssues(result.issues, data ?? type);
    throw new OracleError('validation_failed', { message });
  }
}
