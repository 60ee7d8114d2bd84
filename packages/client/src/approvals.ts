import type {
  Approval,
  ApprovalDecided,
  ApprovalDelegation,
  ApprovalList,
  DecideApproval,
  Decision,
  JsonObject,
  Question,
  QuestionAnswered,
  QuestionList,
  Receipt,
  Rule,
  UserRules,
} from '@sibyl/protocol';
import {
  APPROVE_ABILITY,
  buildDecisionClaims,
  canonicalJson,
  hashJson,
  hashTerms,
  RULES_ABILITY,
  RUN_ABILITY,
  toApprovalId,
  toOracleResource,
} from '@sibyl/protocol/decisions';
import { type Capability, publicKeyFromDid } from '@sibyl/ucan/browser';
import { OracleClientError, toSigningError } from './errors.js';
import type { HttpClient, RequestOptions } from './http/http-client.js';
import type { OracleSigner } from './signers/signer.js';

/** How long a signed decision can be sent. */
const DECISION_SECONDS = 120;
/** How long signed rules can be sent; they stay in force afterwards. */
const RULES_SECONDS = 600;

const toPath = (id: string) => `/approvals/${encodeURIComponent(id)}`;

export interface Approvals extends ReturnType<typeof createApprovals> {}

export function createApprovals(http: HttpClient, signer: OracleSigner) {
  const decide = async (
    { id, facts, args: originalArgs, delegates }: Approval,
    decision: Decision,
    { args, reason }: { readonly args?: JsonObject; readonly reason?: string },
  ): Promise<ApprovalDecided> => {
    await assertConsistent({ id, facts, args: originalArgs });
    const claims = await buildDecisionClaims({ id, decision, originalArgs, args, reason });
    const invocation = await sign(http, signer, {
      can: APPROVE_ABILITY,
      nb: { ...claims },
      seconds: DECISION_SECONDS,
    });
    const isAsShown = decision === 'approve' && args === undefined;
    const delegation = isAsShown && delegates && (await delegate(http, signer, delegates));
    const body: DecideApproval = {
      ...{ decision, reason, args, invocation },
      ...(delegation && { delegation }),
    };
    return http.requestJson({ method: 'POST', path: toPath(id), body });
  };
  return {
    /** The tool calls that wait for the user, oldest first. */
    async list(
      options?: RequestOptions & { readonly sessionId?: string },
    ): Promise<readonly Approval[]> {
      return (await http.get<ApprovalList>('/approvals', options)).approvals;
    },
    get(id: string, options?: RequestOptions): Promise<Approval> {
      return http.get(toPath(id), options);
    },
    /**
     * Signs an approval of exactly the call that is given; with `args`, of a call with these arguments. Without, it signs the
     * `delegates` of the approval too: show them to the user.
     */
    approve(
      approval: Approval,
      options: { readonly args?: JsonObject; readonly reason?: string } = {},
    ): Promise<ApprovalDecided> {
      return decide(approval, 'approve', options);
    },
    /** Signs a denial; the model receives the reason. */
    deny(approval: Approval, options: { readonly reason?: string } = {}): Promise<ApprovalDecided> {
      return decide(approval, 'deny', options);
    },
    /** The receipt of a signed decision, to be stored byte for byte. */
    async receipt(id: string, { signal }: RequestOptions = {}): Promise<string> {
      return (await http.request({ path: `${toPath(id)}/receipt`, signal })).text();
    },
  };
}

export interface UserQuestions extends ReturnType<typeof createQuestions> {}

export const createQuestions = (http: HttpClient) => ({
  /** The open questions of a session. */
  async list(sessionId: string, options?: RequestOptions): Promise<readonly Question[]> {
    const query = { sessionId, ...options };
    return (await http.get<QuestionList>('/questions', query)).questions;
  },
  /** Answers as the schema of the question says; the turn continues once nothing else is open. */
  answer(id: string, value: unknown): Promise<QuestionAnswered> {
    const path = `/questions/${encodeURIComponent(id)}`;
    return http.requestJson({ method: 'POST', path, body: { value } });
  },
});

/** An oracle must not show one call and have another one signed. */
async function assertConsistent({
  id,
  facts,
  args,
}: Pick<Approval, 'id' | 'facts' | 'args'>): Promise<void> {
  if (facts.argsHash === (await hashJson(args)) && id === (await toApprovalId(facts))) return;
  throw new OracleClientError(
    'invalid_reply',
    'Nothing was signed: the id of the approval does not belong to the call that is shown',
  );
}

/** Signs what the approval delegates: turns at this oracle, for exactly what is shown. */
async function delegate(
  http: HttpClient,
  signer: OracleSigner,
  { can, with: resource, terms, expiresInSeconds: seconds }: ApprovalDelegation,
): Promise<string> {
  const { did } = await http.discovery.card();
  const isForOracle = can === RUN_ABILITY && resource.startsWith(`${toOracleResource(did)}:`);
  if (!isForOracle || Object.keys(terms).length === 0)
    throw new OracleClientError(
      'invalid_reply',
      'Nothing was signed: the approval would delegate more than turns with what is shown',
    );
  return sign(http, signer, { can, with: resource, nb: await hashTerms(terms), seconds });
}

export interface Rules extends ReturnType<typeof createRules> {}

export const createRules = (http: HttpClient, signer: OracleSigner) => ({
  get(options?: RequestOptions): Promise<UserRules> {
    return http.get('/rules', options);
  },
  /** Signs rules and stores them; the first one that matches a tool decides. */
  async set(rules: readonly Rule[]): Promise<UserRules> {
    const nb = { rules: rules.map(({ match, effect }) => ({ match, effect })) };
    const token = await sign(http, signer, { can: RULES_ABILITY, nb, seconds: RULES_SECONDS });
    return http.requestJson({ method: 'PUT', path: '/rules', body: { token } });
  },
  async delete(): Promise<void> {
    await http.requestJson({ method: 'DELETE', path: '/rules' });
  },
});

export interface ActivityQuery extends RequestOptions {
  readonly limit?: number;
  /** `nextCursor` of the previous page. */
  readonly before?: string;
  readonly sessionId?: string;
}

/** Signs a statement for the oracle that can be sent for some seconds. */
export async function sign(
  http: HttpClient,
  signer: OracleSigner,
  {
    can,
    with: resource,
    nb,
    seconds,
  }: {
    readonly can: string;
    /** The oracle, if it is absent. */
    readonly with?: string;
    readonly nb: Capability['nb'];
    readonly seconds: number;
  },
): Promise<string> {
  const { did: audience } = await http.discovery.card();
  const capability = { can, with: resource ?? toOracleResource(audience), ...(nb && { nb }) };
  const expiration = http.discovery.now() + seconds;
  const minted = await signer
    .delegate({ audience, capabilities: [capability], expiration })
    .catch((cause) => {
      throw toSigningError(cause);
    });
  return minted.token;
}

const CONTEXT = 'sibyl receipt 1\n';

/**
 * Checks that a receipt is what the oracle signed, byte for byte, for exactly the call and arguments in it. It does not check
 * the user's own signature: `sibyl receipts verify` does both.
 */
export async function checkReceipt(text: string, approvalId: string): Promise<boolean> {
  const receipt = parseReceipt(text);
  if (!receipt) return false;
  const { signature, ...content } = receipt;
  const { approval, facts, originalArgs } = content;
  const isForCall =
    approval === approvalId &&
    (await toApprovalId(facts)) === approval &&
    (await hashJson(originalArgs)) === facts.argsHash;
  return isForCall && verify(content.oracleKey, CONTEXT + canonicalJson(content), signature);
}

function parseReceipt(text: string): Receipt | undefined {
  try {
    const receipt = JSON.parse(text);
    return canonicalJson(receipt) === text ? receipt : undefined;
  } catch {
    return undefined;
  }
}

async function verify(keyDid: string, text: string, signature: string): Promise<boolean> {
  const { ok: raw } = publicKeyFromDid(keyDid);
  if (!raw) return false;
  const key = await crypto.subtle.importKey('raw', Uint8Array.from(raw), 'Ed25519', false, [
    'verify',
  ]);
  const bytes = Uint8Array.from(atob(signature), (character) => character.charCodeAt(0));
  return crypto.subtle.verify('Ed25519', key, bytes, new TextEncoder().encode(text));
}
