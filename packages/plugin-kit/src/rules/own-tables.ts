import {
  type CommonTableExpressionNameNode,
  type KyselyPlugin,
  OperationNodeTransformer,
  type PluginTransformQueryArgs,
  type PluginTransformResultArgs,
  type ReferenceNode,
  type TableNode,
} from 'kysely';

/** How the names of a plugin's tables begin. */
export const tablePrefixOf = (plugin: string) => `${plugin.replaceAll('-', '_')}_`;

/** Refuses queries on tables that are not the plugin's own; raw SQL is trusted to keep to them. */
export class OwnTables implements KyselyPlugin {
  readonly #plugin: string;
  readonly #prefix: string;
  /** Of plugins whose names begin with this one's. */
  readonly #longerPrefixes: readonly string[];

  constructor(plugin: string, others: readonly string[]) {
    this.#plugin = plugin;
    this.#prefix = tablePrefixOf(plugin);
    this.#longerPrefixes = others
      .filter((other) => other !== plugin)
      .map(tablePrefixOf)
      .filter((prefix) => prefix.startsWith(this.#prefix));
  }

  transformQuery({ node }: PluginTransformQueryArgs) {
    const names = new TableNames();
    names.transformNode(node);
    for (const name of names.used) if (!this.#isOwn(name)) throw this.#refusal(name);
    return node;
  }

  async transformResult({ result }: PluginTransformResultArgs) {
    return result;
  }

  #isOwn(name: string): boolean {
    const isOthers = this.#longerPrefixes.some((prefix) => name.startsWith(prefix));
    return name.startsWith(this.#prefix) && !isOthers;
  }

  #refusal(name: string): Error {
    return new Error(
      `The table ${name} is not the plugin ${this.#plugin}'s: the names of its tables begin with ${this.#prefix}`,
    );
  }
}

/** Collects the tables a query reads or writes. */
class TableNames extends OperationNodeTransformer {
  readonly #named = new Set<string>();
  readonly #madeByQuery = new Set<string>();

  get used(): readonly string[] {
    return [...this.#named].filter((name) => !this.#madeByQuery.has(name));
  }

  protected override transformTable(node: TableNode): TableNode {
    const { schema, identifier } = node.table;
    this.#named.add(schema ? `${schema.name}.${identifier.name}` : identifier.name);
    return node;
  }

  /** Names what is selected from already, often by an alias. */
  protected override transformReference(node: ReferenceNode): ReferenceNode {
    return node;
  }

  protected override transformCommonTableExpressionName(node: CommonTableExpressionNameNode) {
    this.#madeByQuery.add(node.table.table.identifier.name);
    return node;
  }
}
