import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { LruMap, TimeoutError, textBytes, withTimeout } from '@sibyl/server-kit';
import type { Logger } from '../observe/metrics.js';
import { isPassing } from '../schema/descriptor-source.js';
import { ServerReflection } from '../schema/reflection.js';
import type { SchemaGroup } from '../schema/schema-registry.js';
import { QueryError } from './query-error.js';

/** How long a type that no node knows is not looked up again. */
const UNKNOWN_LIFE_MS = 10_000;
const MAX_UNKNOWN_BYTES = 1024 * 1024;
/** Lookups in progress: clients name types in the bodies they send. */
const MAX_RUNNING = 100;
const TYPE_NAME = /^[A-Za-z_][\w.]{0,200}$/;

/** Looks up types that occur inside an Any and that a schema lacks, by the reflection of its nodes. */
export class TypeLookup {
  private readonly running = new Map<string, Promise<boolean>>();
  /** Types that no node knows, with the time until which they are not looked up again. */
  private readonly unknown = new LruMap<string, number>({
    maxBytes: MAX_UNKNOWN_BYTES,
    measure: (_, name) => textBytes(name),
  });

  constructor(private readonly logger: Logger) {}

  /**
   * Resolves to whether the schema has the type now. Throws 504 at `endsAt`, in milliseconds of `performance.now()`;
   * the lookup continues for others.
   */
  async resolve(group: SchemaGroup, typeName: string, endsAt: number): Promise<boolean> {
    const { schema } = group;
    if (schema.types.getMessage(typeName)) return true;
    if (!TYPE_NAME.test(typeName)) return false;
    const key = `${schema.fingerprint} ${typeName}`;
    if ((this.unknown.get(key) ?? 0) > performance.now()) return false;
    const lookup = this.running.get(key) ?? this.begin(group, typeName, key);
    const ms = Math.max(0, endsAt - performance.now());
    const message = `the type ${typeName} was not found in time`;
    try {
      return await withTimeout({ ms, message }, () => lookup);
    } catch (error) {
      if (!(error instanceof TimeoutError)) throw error;
      throw new GrpcError(GrpcCode.deadlineExceeded, message, 'transport');
    }
  }

  private begin(group: SchemaGroup, typeName: string, key: string): Promise<boolean> {
    if (this.running.size >= MAX_RUNNING) throw tooBusy();
    const lookup = this.lookUp(group, typeName)
      .then((isFound) => {
        if (!isFound) this.unknown.set(key, performance.now() + UNKNOWN_LIFE_MS);
        return isFound;
      })
      .finally(() => this.running.delete(key));
    this.running.set(key, lookup);
    return lookup;
  }

  /** Throws 503 while every node fails: the version of another source would be used from then on. */
  private async lookUp({ schema, nodes }: SchemaGroup, typeName: string): Promise<boolean> {
    let isAnswered = false;
    for (const { upstream, name } of nodes.filter(({ isUp }) => isUp)) {
      try {
        const read = (server: ServerReflection) => server.readFiles([typeName]);
        schema.types.add((await ServerReflection.use(upstream, read)) ?? []);
        if (schema.types.getMessage(typeName)) return true;
        isAnswered = true;
      } catch (error) {
        isAnswered ||= !isPassing(error);
        this.logger.warn({ node: name, typeName, reason: String(error) }, 'cannot look up a type');
      }
    }
    if (!isAnswered) throw notAnswered(typeName);
    return schema.types.settle(typeName);
  }
}

function notAnswered(typeName: string): GrpcError {
  const text = `no node answered what the type ${typeName} is; try again in a second`;
  return new GrpcError(GrpcCode.unavailable, text, 'transport');
}

function tooBusy(): QueryError {
  const text = 'too many types are being looked up; try again in a second';
  return new QueryError(GrpcCode.unavailable, text, { headers: { 'Retry-After': '1' } });
}
