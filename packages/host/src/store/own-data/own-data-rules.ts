/** The column with the user's DID, in tables where it is not `owner`. */
export const OWNER_COLUMNS: Readonly<Record<string, string>> = { callers: 'did' };

/** The tables whose rows belong to no user, and what they contain. Every other table has an owner. */
export const TABLES_WITHOUT_OWNER: Readonly<Record<string, string>> = {
  model_usage: 'Tokens per day, of all users together',
  database_info: 'Facts about the database, and the erasures that have not ended',
  hosts: 'The running hosts',
};

/** Which migrations are done, of the host and of each plugin. */
export const isMigrationTable = (name: string): boolean => /_migration(_lock)?$/.test(name);

/** What is left of a table when its user is erased. */
export interface EraseException {
  readonly table: string;
  /** `rows`: they stay as they are. `without owner`: they stay, but no longer say whose they were. */
  readonly keeps: 'rows' | 'without owner';
  /** Only rows with a value in this column are kept. */
  readonly onlyWith?: string;
  readonly reason: string;
}

/** All that erasing a user does not delete. The reply to the user names those that apply. */
export const ERASE_EXCEPTIONS: readonly EraseException[] = [
  {
    table: 'claims_claims',
    keeps: 'rows',
    reason: 'Claims for payment, which the operator must keep',
  },
  {
    table: 'approvals',
    keeps: 'rows',
    onlyWith: 'receipt',
    reason: 'Receipts of signed decisions, which the operator must keep',
  },
  {
    table: 'credits_entries',
    keeps: 'without owner',
    reason: 'Payments, so that none counts twice',
  },
  {
    table: 'revocations',
    keeps: 'without owner',
    reason: 'Hashes of revoked delegations, so that these stay revoked',
  },
  {
    table: 'blocked_users',
    keeps: 'rows',
    reason: 'Users whom the operator has blocked, so that they stay blocked',
  },
  {
    table: 'operator_actions',
    keeps: 'rows',
    reason: 'What operators did, which must stay accountable',
  },
  {
    table: 'single_use',
    keeps: 'without owner',
    reason: 'Hashes of used invocations and invitations, so that these stay used until they expire',
  },
];

/** What is computed from other tables, or exported as files, and so is not exported as rows. */
export const DERIVED_TABLES: readonly string[] = [
  'search_queue',
  'search_documents',
  'file_chunks',
  'file_passages',
  'file_vectors',
  'memory_vectors',
];

/** By default credentials: a stolen export must not be able to act for the user. */
export const OMITTED_COLUMNS: readonly {
  readonly table: string;
  readonly column: string;
  readonly reason?: string;
}[] = [
  { table: 'delegations', column: 'ciphertext' },
  { table: 'secrets', column: 'ciphertext' },
  { table: 'runs', column: 'request' },
  { table: 'file_chunks', column: 'data', reason: 'the files are in uploads, as a whole' },
];

/** The encrypted columns that an export contains in plain text, and the kind each was encrypted as. */
export const SEALED_COLUMNS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  run_steps: { data: 'step' },
  interrupts: { data: 'interrupt', answer: 'answer' },
  approvals: { request: 'approval', answer: 'answer', receipt: 'receipt' },
  rules: { token: 'rules' },
};
