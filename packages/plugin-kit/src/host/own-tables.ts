import {
  type CommonTableExpressionNameNode,
  type KyselyPlugin,
  OperationNodeTransformer,
  type PluginTransformQueryArgs,
  type PluginTransformResultArgs,
  type ReferenceNode,
  type TableNode,
} from 'kysely';

/** The prefix of the names of a plugin's tables. */
export const getTablePrefix = (plugin: string) => `${plugin.replaceAll('-', '_')}_`;

/** Refuses queries on the tables of others; raw SQL is not checked. */
export class OwnTables implements KyselyPlugin {
  private readonly plugin: string;
  private readonly prefix: string;
  /** Prefixes of plugins whose names begin with the name of this one. */
  private readonly longerPrefixes: readonly string[];

  constructor(plugin: string, others: readonly string[]) {
    this.plugin = plugin;
    this.prefix = getTablePrefix(plugin);
    this.longerPrefixes = others
      .filter((other) => other !== plugin)
      .map(getTablePrefix)
      .filter((prefix) => prefix.startsWith(this.prefix));
  }

  transformQuery({ node }: PluginTransformQueryArgs) {
    const names = new TableNames();
    names.transformNode(node);
    for (const name of names.used) this.assertOwn(name);
    return node;
  }

  assertOwn(name: string): void {
    if (!this.isOwn(name)) throw this.createError(name);
  }

  async transformResult({ result }: PluginTransformResultArgs) {
    return result;
  }

  private isOwn(name: string): boolean {
    const isOthers = this.longerPrefixes.some((prefix) => name.startsWith(prefix));
    return name.startsWith(this.prefix) && !isOthers;
  }

  private createError(name: string): Error {
    return new Error(
      `The table ${name} is not the plugin ${this.plugin}'s: the names of its tables begin with ${this.prefix}`,
    );
  }
}

/** Collects the tables that a query reads or writes. */
class TableNames extends OperationNodeTransformer {
  private readonly named = new Set<string>();
  private readonly definedByQuery = new Set<string>();

  get used(): readonly string[] {
    return [...this.named].filter((name) => !this.definedByQuery.has(name));
  }

  protected override transformTable(node: TableNode): TableNode {
    const { schema, identifier } = node.table;
    this.named.add(schema ? `${schema.name}.${identifier.name}` : identifier.name);
    return node;
  }

  /** A reference names a table that the query already selects from, often by its alias. */
  protected override transformReference(node: ReferenceNode): ReferenceNode {
    return node;
  }

  protected override transformCommonTableExpressionName(node: CommonTableExpressionNameNode) {
    this.definedByQuery.add(node.table.table.identifier.name);
    return node;
  }
}
