import { LruMap, textBytes } from '@sibyl/server-kit';
import type { Logger } from '../observe/metrics.js';
import { ServerReflection } from '../schema/reflection.js';
import type { SchemaGroup } from '../schema/schema-registry.js';

/** How long a type that no node knows is not looked up again. */
const UNKNOWN_LIFE_MS = 10_000;
const MAX_UNKNOWN_BYTES = 1024 * 1024;
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

  /** Resolves to whether the schema has the type now. */
  async resolve(group: SchemaGroup, typeName: string): Promise<boolean> {
    const { schema } = group;
    if (schema.types.getMessage(typeName)) return true;
    if (!TYPE_NAME.test(typeName)) return false;
    const key = `${schema.fingerprint} ${typeName}`;
    if ((this.unknown.get(key) ?? 0) > performance.now()) return false;
    const lookup = this.running.get(key) ?? this.lookUp(group, typeName);
    this.running.set(key, lookup);
    const isFound = await lookup.finally(() => this.running.delete(key));
    if (!isFound) this.unknown.set(key, performance.now() + UNKNOWN_LIFE_MS);
    return isFound;
  }

  private async lookUp({ schema, nodes }: SchemaGroup, typeName: string): Promise<boolean> {
    for (const { upstream, name } of nodes.filter(({ isUp }) => isUp)) {
      try {
        const read = (server: ServerReflection) => server.readFiles([typeName]);
        schema.types.add((await ServerReflection.use(upstream, read)) ?? []);
        if (schema.types.getMessage(typeName)) return true;
      } catch (error) {
        this.logger.warn({ node: name, typeName, reason: String(error) }, 'cannot look up a type');
      }
    }
    return schema.types.settle(typeName);
  }
}
