import { setTimeout as sleep } from 'node:timers/promises';
import {
  OracleError,
  RULES_ABILITY,
  type Rule,
  type RuleEffect,
  RulesClaims,
  toOracleResource,
  type UserRules as UserRulesView,
} from '@sibyl/protocol';
import { withTimeout } from '@sibyl/server-kit';
import type { UcanError, Verifier } from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { HostBus } from '../bus/host-bus.js';
import type { DiskSpace } from '../store/disk-space.js';
import type { RulesStore, StoredRules } from '../store/rules-store.js';
import { AccessWatch } from './access-watch.js';
import { toTemporaryError } from './authenticator.js';
import type { Caller } from './caller.js';

interface UserRulesDeps {
  readonly oracleDid: string;
  readonly verifier: Verifier;
  readonly store: RulesStore;
  /** Undefined if the database is not on a disk of this host. */
  readonly disk?: Pick<DiskSpace, 'assertRoom'> | undefined;
  readonly bus: HostBus;
  readonly logger: Logger;
  /** The matches of `APPROVALS`, which users see beside their own rules. */
  readonly operator: readonly string[];
}

/** Stores the rules that users sign, and notifies running turns on all hosts when they change. */
export class UserRules {
  /** By owner and CID, so that a change that no message reported is found too. */
  private readonly changes: AccessWatch;

  constructor(private readonly deps: UserRulesDeps) {
    const { bus, logger } = deps;
    this.changes = new AccessWatch({
      findEnded: (keys) => this.findChanged(keys),
      onEnded: (key) => this.changes.end(key),
      bus,
      logger,
    });
    bus.on('rules-changed', ({ key }) => this.changes.end(key));
  }

  /** Stores rules that the caller has signed. */
  async put({ did, charge }: Caller, token: string): Promise<UserRulesView> {
    const { oracleDid, verifier, store, disk } = this.deps;
    // Used tokens are remembered, and anyone can sign any number of them. No turn starts meanwhile.
    await disk?.assertRoom();
    const statement = { can: RULES_ABILITY, with: toOracleResource(oracleDid), issuer: did };
    const { ok, error } = await verifier.verifyStatement(token, { ...statement, charge });
    if (error) throw toTemporaryError(error) ?? this.refuse(error);
    const claims = RulesClaims.safeParse(ok.nb);
    if (!claims.success)
      throw new OracleError('invalid_rules', {
        message: `nb must be {rules: [{match, effect}]}: ${claims.error.issues[0]?.message}`,
      });
    const { rules } = claims.data;
    const expiresAt = Number.isFinite(ok.expiration) ? ok.expiration : null;
    const result = await store.put({ owner: did, cid: ok.cid, rules, expiresAt, token });
    if (result.state === 'replayed') throw new OracleError('rules_replaced');
    this.announce(did, result.previous);
    return this.toView(result.stored);
  }

  async get(did: string): Promise<UserRulesView> {
    return this.toView(await this.deps.store.find(did));
  }

  async delete({ did }: Caller): Promise<void> {
    const previous = await this.deps.store.delete(did);
    if (previous !== undefined) this.announce(did, previous);
  }

  /** The rules of a user for the time of a turn. */
  async open(owner: string): Promise<LiveRules> {
    const { store, logger } = this.deps;
    const rules = new LiveRules({
      load: () => store.find(owner),
      watch: (cid, onChange) => this.changes.watch([toKey(owner, cid)], onChange),
      logger,
    });
    await rules.reload();
    return rules;
  }

  private toView(stored: StoredRules | undefined): UserRulesView {
    const { operator } = this.deps;
    return { ...toView(stored), ...(operator.length > 0 && { operator: [...operator] }) };
  }

  private announce(owner: string, previous: string): void {
    const key = toKey(owner, previous);
    this.changes.end(key);
    this.deps.bus.send('others', 'rules-changed', { key });
  }

  private async findChanged(keys: readonly string[]): Promise<readonly string[]> {
    const owners = [...new Set(keys.map(toOwner))];
    const current = await this.deps.store.cids(owners);
    return keys.filter((key) => {
      const owner = toOwner(key);
      return key !== toKey(owner, current.get(owner) ?? '');
    });
  }

  private refuse({ code, detail, cid, issuer }: UcanError): OracleError {
    this.deps.logger.info({ reason: code, detail, cid, did: issuer }, 'rules rejected');
    return new OracleError('invalid_rules', { message: explainRefusal(code) });
  }
}

/** A DID contains no space. */
const toKey = (owner: string, cid: string): string => `${owner} ${cid}`;
const toOwner = (key: string): string => key.slice(0, key.indexOf(' '));

/** Explains errors that the sender can fix; all others have the same text. */
function explainRefusal(code: UcanError['code']): string {
  switch (code) {
    case 'expired':
      return 'The token has expired: sign a new one';
    case 'wrong_issuer':
      return 'The token was signed by another user';
    case 'revoked':
      return 'The token was revoked: sign a new one';
    default:
      return 'token must be a UCAN from you to this oracle, without proofs, with one capability: oracle/rules';
  }
}

function toView(stored: StoredRules | undefined): UserRulesView {
  if (!stored) return { rules: [] };
  const { rules, cid, storedAt, expiresAt } = stored;
  return {
    rules: [...rules],
    cid,
    storedAt: new Date(storedAt).toISOString(),
    ...(expiresAt !== null && { expiration: expiresAt }),
  };
}

interface LiveRulesDeps {
  readonly load: () => Promise<StoredRules | undefined>;
  /** Calls back once the rules are no longer those of the CID. */
  readonly watch: (cid: string, onChange: () => void) => () => void;
  readonly logger: Logger;
}

/** The rules of a user, kept up to date. */
export class LiveRules {
  private stored: StoredRules | undefined;
  private readonly listeners = new Set<() => void>();
  private stop: (() => void) | undefined;
  /** The rules have changed, and the new ones cannot be read. */
  private isUnknown = false;
  private isClosed = false;
  private reads = 0;

  constructor(private readonly deps: LiveRulesDeps) {}

  get rules(): readonly Rule[] {
    return this.isUnknown ? BLOCK_ALL : (this.stored?.rules ?? []);
  }

  /** Calls back after each change; returns a function that ends this. */
  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  async reload(): Promise<void> {
    this.reads += 1;
    const read = this.reads;
    const stored = await this.deps.load();
    // A later read knows more.
    if (read !== this.reads) return;
    this.stored = stored;
    this.isUnknown = false;
    if (this.isClosed) return;
    this.stop?.();
    this.stop = this.deps.watch(this.stored?.cid ?? '', () => void this.update());
    this.notify();
  }

  close(): void {
    this.isClosed = true;
    this.stop?.();
  }

  private notify(): void {
    for (const listener of [...this.listeners]) listener();
  }

  /** Until the changed rules are read, nothing runs that they might forbid. */
  private async update(): Promise<void> {
    while (!this.isClosed)
      try {
        return await withTimeout(READ_LIMIT, () => this.reload());
      } catch (err) {
        this.deps.logger.warn({ reason: String(err) }, 'changed rules not read; trying again');
        this.isUnknown = true;
        this.notify();
        await sleep(RETRY_MS, undefined, { ref: false });
      }
  }
}

const RETRY_MS = 1_000;
const READ_LIMIT = { ms: 1_000, message: 'the store does not answer' };

const BLOCK_ALL: readonly Rule[] = [
  { match: 'tool:*', effect: 'block' },
  { match: 'can:*', effect: 'block' },
];

/** What a rule may be about. */
export type RuleTarget =
  | { readonly tool: string; readonly plugin: string }
  | { readonly can: string };

/** The strictest of several effects. */
export function strictest(...effects: readonly RuleEffect[]): RuleEffect {
  if (effects.includes('block')) return 'block';
  if (effects.includes('ask')) return 'ask';
  return effects.includes('allow') ? 'allow' : 'block';
}

/**
 * The effect of the first rule that matches; without one, everything is allowed. An ability that includes others, such as
 * `store/*`, is as restricted as any of them.
 */
export function findEffect(rules: readonly Rule[], target: RuleTarget): RuleEffect {
  const first = rules.find(({ match }) => matches(match, target))?.effect ?? 'allow';
  if (!('can' in target)) return first;
  const included = rules.filter(({ match }) => isIncluded(match, target.can));
  return strictest(first, ...included.map(({ effect }) => effect));
}

/** Whether a match, such as `send_*`, `plugin:mcp` or `can:store/*`, is about the target. */
export function matches(match: string, target: RuleTarget): boolean {
  const { kind, pattern } = parseMatch(match);
  if ('can' in target) return kind === 'can' && matchesText(pattern, target.can);
  if (kind === 'plugin') return matchesText(pattern, target.plugin);
  return kind === 'tool' && matchesText(pattern, target.tool);
}

function parseMatch(match: string) {
  const [, kind = 'tool', pattern = ''] = /^(?:(tool|plugin|can):)?(.*)$/.exec(match) ?? [];
  return { kind, pattern };
}

const matchesText = (pattern: string, text: string): boolean =>
  pattern.endsWith('*') ? text.startsWith(pattern.slice(0, -1)) : text === pattern;

/** Whether a match is about an ability that another one includes. */
function isIncluded(match: string, can: string): boolean {
  const { kind, pattern } = parseMatch(match);
  return kind === 'can' && pattern !== can && matchesText(can, pattern);
}
