import { z } from 'zod';
import { Cid, Did, Id, Timestamp, UcanToken, UnixSeconds, wholeNumber } from './identifiers.js';
import { JsonObject } from './json.js';
import { PendingAnswer } from './run-frames.js';

const Hash = z.string().regex(/^[0-9a-f]{64}$/, { error: 'must be a SHA-256 in hex' });
const ToolName = z.string().min(1).max(64);
const PluginName = z.string().min(1).max(64);
/** So short that the model receives all of it. */
const Reason = z.string().max(400);

export const Decision = z.enum(['approve', 'deny']);
export type Decision = z.infer<typeof Decision>;

/** The call that an approval is for. The id of the approval is the hash of these facts. */
export const ApprovalFacts = z
  .strictObject({
    sessionId: Id,
    runId: Id.describe('The run that waits'),
    call: z.string().max(2000).describe('The call within its turn'),
    tool: ToolName,
    plugin: PluginName,
    argsHash: Hash.describe('SHA-256 of the canonical JSON (RFC 8785) of the arguments'),
  })
  .meta({ id: 'ApprovalFacts' });
export type ApprovalFacts = z.infer<typeof ApprovalFacts>;

/** What approving a call also delegates, as its user signs it. */
export const ApprovalDelegation = z
  .object({
    can: z.literal('oracle/run'),
    with: z.string().describe('The only resource of the delegation'),
    terms: JsonObject.describe(
      'What it is for. For each term, the delegation has a caveat `<name>Hash`: SHA-256 in hex of its canonical JSON (RFC 8785)',
    ),
    expiresInSeconds: z.int().min(1),
  })
  .meta({ id: 'ApprovalDelegation' });
export type ApprovalDelegation = z.infer<typeof ApprovalDelegation>;

/** A tool call that needs, or needed, the approval of its user. */
export const Approval = z
  .object({
    id: Id,
    facts: ApprovalFacts,
    toolCallId: z.string(),
    args: JsonObject.describe('The exact arguments'),
    inputSchema: JsonObject.describe('JSON Schema that edited arguments must fit'),
    requiredBy: z
      .enum(['tool', 'operator', 'rules'])
      .describe("Who asks: the tool itself, the operator's `APPROVALS`, or the user's own rules"),
    delegates: ApprovalDelegation.optional().describe(
      'What to sign too when approving the call without edits',
    ),
    status: z.enum(['pending', 'approved', 'denied', 'expired', 'cancelled']),
    createdAt: Timestamp,
    expiresAt: Timestamp,
    decidedAt: Timestamp.optional(),
    isSigned: z.boolean().optional().describe('Whether there is a receipt'),
    reason: z.string().optional(),
    approvedArgs: JsonObject.optional().describe('If the user edited the arguments'),
  })
  .meta({ id: 'Approval' });
export type Approval = z.infer<typeof Approval>;

/** Query of `GET /approvals`. */
export const ListApprovals = z.strictObject({ sessionId: Id.optional() });
export type ListApprovals = z.infer<typeof ListApprovals>;

/** Reply of `GET /approvals`: the pending ones, oldest first. */
export const ApprovalList = z.object({ approvals: z.array(Approval) }).meta({ id: 'ApprovalList' });
export type ApprovalList = z.infer<typeof ApprovalList>;

/** Body of `POST /approvals/:id`. */
export const DecideApproval = z
  .strictObject({
    decision: Decision,
    reason: Reason.optional().describe('The model receives it if the call is denied'),
    args: JsonObject.optional().describe('Arguments that replace those of the call'),
    invocation: UcanToken.optional().describe(
      'A UCAN of the user with exactly one capability, `oracle/approve`; without one, the only decision is `deny`',
    ),
    delegation: UcanToken.optional().describe(
      'With `approve` and without `args`: the delegation that `delegates` of the approval asks for, signed by the user for this oracle; without one, the tool acts without it',
    ),
  })
  .meta({ id: 'DecideApproval' });
export type DecideApproval = z.infer<typeof DecideApproval>;

/** Reply of `POST /approvals/:id`. */
export const ApprovalDecided = z
  .object({
    id: Id,
    status: z.enum(['approved', 'denied']),
    runId: Id.describe('The run to join'),
    pending: z.array(PendingAnswer).optional().describe('What the turn still waits for'),
  })
  .meta({ id: 'ApprovalDecided' });
export type ApprovalDecided = z.infer<typeof ApprovalDecided>;

/** What a tool asks its user; the turn waits for the answer. */
export const Question = PendingAnswer.extend({
  sessionId: Id,
  runId: Id.describe('The run that waits'),
  data: z.unknown().describe('What to show, as the tool wrote it: usually a text'),
  schema: JsonObject.describe('JSON Schema of the answer'),
  expiresAt: Timestamp,
}).meta({ id: 'Question' });
export type Question = z.infer<typeof Question>;

/** Query of `GET /questions`. */
export const ListQuestions = z.strictObject({ sessionId: Id });
export type ListQuestions = z.infer<typeof ListQuestions>;

/** Reply of `GET /questions`: the open ones of a session. */
export const QuestionList = z.object({ questions: z.array(Question) }).meta({ id: 'QuestionList' });
export type QuestionList = z.infer<typeof QuestionList>;

/** Body of `POST /questions/:id`. */
export const AnswerQuestion = z
  .strictObject({ value: z.unknown().describe('The answer, as the schema of the question says') })
  .meta({ id: 'AnswerQuestion' });
export type AnswerQuestion = z.infer<typeof AnswerQuestion>;

/** Reply of `POST /questions/:id`. */
export const QuestionAnswered = z
  .object({
    id: Id,
    runId: Id.describe('The run to join'),
    pending: z.array(PendingAnswer).optional().describe('What the turn still waits for'),
  })
  .meta({ id: 'QuestionAnswered' });
export type QuestionAnswered = z.infer<typeof QuestionAnswered>;

/** The caveats of a decision: exactly these, each a text. */
export const DecisionClaims = z.strictObject({
  approval: Hash,
  decision: Decision,
  argsHash: Hash.describe('Of the arguments to run with, edited or not'),
  originalArgsHash: Hash,
  reasonHash: Hash.describe('Of the reason as a JSON text, or of null'),
});
export type DecisionClaims = z.infer<typeof DecisionClaims>;

/** Proof of a decision, which anyone can verify without the host: canonical JSON, byte for byte. */
export const Receipt = z
  .strictObject({
    version: z.literal(1),
    approval: Hash,
    facts: ApprovalFacts,
    decision: Decision,
    originalArgs: JsonObject,
    args: JsonObject.describe('What the call ran with'),
    reason: z.string().nullable(),
    user: Did,
    userKey: Did.describe('The did:key of the key that signed, as resolved at the time'),
    invocation: UcanToken.describe('What the user signed'),
    oracle: Did,
    oracleKey: Did.describe('The did:key of the key of `signature`'),
    decidedAt: Timestamp.describe('When the oracle accepted the decision'),
    signature: z.string().max(100).describe("The oracle's Ed25519 signature of all other fields"),
  })
  .meta({ id: 'Receipt' });
export type Receipt = z.infer<typeof Receipt>;

/** How strict a rule is. */
export const RuleEffect = z.enum(['allow', 'ask', 'block']);
export type RuleEffect = z.infer<typeof RuleEffect>;

const MATCH = /^(?:(?:tool|plugin|can):)?(?:[A-Za-z0-9_.:/-]{1,100}\*?|\*)$/;

/** What a rule is about: a tool, `plugin:` and a plugin, or `can:` and an ability; `*` at the end matches any rest. */
export const RuleMatch = z.string().max(128).regex(MATCH, {
  error: 'must be a tool, plugin:name or can:ability, such as send_* or can:store/*',
});

/** A rule of a user. */
export const Rule = z.strictObject({ match: RuleMatch, effect: RuleEffect }).meta({ id: 'Rule' });
export type Rule = z.infer<typeof Rule>;

const MAX_RULES = 64;
const RuleList = z.array(Rule).max(MAX_RULES);

/** The caveats of a token with rules. */
export const RulesClaims = z.strictObject({ rules: RuleList });
export type RulesClaims = z.infer<typeof RulesClaims>;

/** Body of `PUT /rules`. */
export const PutRules = z
  .strictObject({
    token: UcanToken.describe('A UCAN of the user with exactly one capability, `oracle/rules`'),
  })
  .meta({ id: 'PutRules' });
export type PutRules = z.infer<typeof PutRules>;

/** Reply of `GET` and `PUT /rules`. */
export const UserRules = z
  .object({
    rules: RuleList.describe('The first that matches decides'),
    cid: Cid.optional().describe('The token that set them; absent if there are none'),
    storedAt: Timestamp.optional(),
    expiration: UnixSeconds.optional().describe(
      'Of the token, after which it cannot be stored again; the rules stay in force',
    ),
    operator: z
      .array(z.string())
      .optional()
      .describe('What the operator requires approval for; rules cannot allow it'),
  })
  .meta({ id: 'UserRules' });
export type UserRules = z.infer<typeof UserRules>;

/** Reply of `DELETE /rules`. */
export const RulesDeleted = z.object({ ok: z.literal(true) }).meta({ id: 'RulesDeleted' });
export type RulesDeleted = z.infer<typeof RulesDeleted>;

/** Something that happened on behalf of a user. */
export const ActivityEntry = z
  .object({
    id: Id,
    kind: z.enum(['tool_call', 'approval_requested', 'approval_decided', 'rules_changed']),
    at: Timestamp,
    sessionId: Id.optional(),
    runId: Id.optional(),
    approvalId: Id.optional(),
    toolCallId: z.string().optional(),
    tool: z.string().optional(),
    outcome: z
      .enum(['done', 'error', 'approved', 'denied', 'expired', 'cancelled', 'stored', 'deleted'])
      .optional(),
    decidedBy: z
      .enum(['signature', 'request', 'host'])
      .optional()
      .describe("The user's key, an unsigned request of the user, or the host, such as on expiry"),
  })
  .meta({ id: 'ActivityEntry' });
export type ActivityEntry = z.infer<typeof ActivityEntry>;

/** Query of `GET /activity`. */
export const ListActivity = z.strictObject({
  limit: wholeNumber({ min: 1, max: 100 }).default(20),
  before: Id.optional(),
  sessionId: Id.optional(),
});
export type ListActivity = z.infer<typeof ListActivity>;

/** Reply of `GET /activity`: newest first. */
export const ActivityPage = z
  .object({
    entries: z.array(ActivityEntry),
    nextCursor: z.string().nullable().describe('`before` of the next page'),
  })
  .meta({ id: 'ActivityPage' });
export type ActivityPage = z.infer<typeof ActivityPage>;
