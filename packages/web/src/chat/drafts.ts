import type { Attachment } from '@sibyl/client';
import type { UseSessions } from '@sibyl/client/react';
import { useCallback, useEffect, useRef, useState } from 'react';
import { usePage } from '../page/page-context.js';
import { readText, storeText } from '../page/stored-value.js';
import type { OutgoingMessage } from './outbox.js';

/** What the user has typed and not sent. */
interface Draft {
  readonly text: string;
  readonly files: readonly Attachment[];
  /** Set while the user changes a message that was sent. */
  readonly edit?:
    | {
        /** The message before it; null if it is the first. */
        readonly parentId: string | null;
        /** What was in the box before. */
        readonly previous: string;
        readonly previousFiles?: readonly Attachment[] | undefined;
      }
    | undefined;
  /** When it was stored, in Unix milliseconds. */
  readonly at?: number;
}

const EMPTY: Draft = { text: '', files: [] };
const MESSAGE = 'sibyl-draft:';
const FORM = 'sibyl-form:';
/** Begins the ids of forms for which a turn waits. */
const TURN = 'turn:';
const MAX_DRAFTS = 100;

const toKey = (did: string, sessionId = 'new') => `${MESSAGE}${did}:${sessionId}`;

/** Apart from the keys of conversations, whose ids come from the address. */
const toFormKey = (did: string, formId: string) => `${FORM}${did}:${formId}`;

function read(key: string): Draft {
  try {
    return { ...EMPTY, ...JSON.parse(readText(key) ?? '{}') };
  } catch {
    return EMPTY;
  }
}

function store(key: string, draft: Draft): void {
  const isEmpty = !draft.text && draft.files.length === 0 && !draft.edit;
  storeText(key, isEmpty ? null : JSON.stringify({ ...draft, at: Date.now() }));
}

/** Drops drafts, except for the last hundred that were changed. */
function pruneDrafts(): void {
  const keys = listKeys();
  if (keys.length <= MAX_DRAFTS) return;
  const drafts = keys.map((key) => ({ key, at: read(key).at ?? 0 }));
  const oldest = drafts.sort((a, b) => a.at - b.at).slice(0, -MAX_DRAFTS);
  for (const { key } of oldest) localStorage.removeItem(key);
}

const listKeys = (): readonly string[] =>
  Object.keys(localStorage).filter((key) => key.startsWith(MESSAGE) || key.startsWith(FORM));

/** Removes all drafts of an identity, and that of its name. */
export function removeDrafts(did: string): void {
  for (const key of listKeys()) if (key.includes(did)) storeText(key, null);
}

export interface DraftState {
  readonly draft: Draft;
  change(change: Partial<Draft>): void;
  /** Newer than `draft` in functions of an earlier render. */
  latest(): Draft;
}

/** The draft of a conversation, or of a new one; it survives a reload. */
export function useDraft(did: string, sessionId: string | undefined): DraftState {
  const key = toKey(did, sessionId);
  const state = useStoredDraft(key);
  useRestore(key, state.latest);
  return state;
}

/** Stores what was typed here again when the user leaves, if another tab has removed its own draft meanwhile; nothing without a key. */
function useRestore(key: string | undefined, latest: () => Draft): void {
  useEffect(() => {
    if (key === undefined) return;
    const initial = latest();
    const restore = () => {
      const isGone = readText(key) === null;
      if (isGone && latest() !== initial) store(key, latest());
    };
    window.addEventListener('pagehide', restore);
    return () => {
      window.removeEventListener('pagehide', restore);
      restore();
    };
  }, [key, latest]);
}

function useStoredDraft(key: string): DraftState {
  const [draft, setDraft] = useState(() => read(key));
  const newest = useRef(draft);
  const change = useCallback(
    (changed: Partial<Draft>) => {
      newest.current = { ...newest.current, ...changed };
      store(key, newest.current);
      setDraft(newest.current);
    },
    [key],
  );
  const latest = useCallback(() => newest.current, []);
  useEffect(() => pruneDrafts(), []);
  return { draft, change, latest };
}

export interface FormDraft<T> {
  /** What was there before, with what the user has typed. */
  readonly values: T;
  readonly isTyped: boolean;
  change(typed: Partial<T>): void;
  /** Once the form was sent or canceled. */
  clear(): void;
}

/** What the user has typed into a form and not sent; it survives a reload. Not for secrets, which are not stored. */
export function useFormDraft<T extends object>(formId: string, initial: T): FormDraft<T> {
  const key = toFormKey(usePage().signer.did, formId);
  const { draft, change, latest } = useStoredDraft(key);
  // Once a turn has ended, no decision is possible any more.
  useRestore(formId.startsWith(TURN) ? undefined : key, latest);
  const values = { ...initial, ...readTyped<T>(draft) };
  return {
    values,
    isTyped: findTyped(values, initial).length > 0,
    change: (changed) => {
      const typed = findTyped({ ...readTyped<T>(latest()), ...changed }, initial);
      change({ text: typed.length > 0 ? JSON.stringify(Object.fromEntries(typed)) : '' });
    },
    clear: () => {
      const typed = latest().text;
      const stored = read(key);
      change({ text: '' });
      // Another tab has typed it.
      if (stored.text !== typed) store(key, stored);
    },
  };
}

/** The fields whose values are not those that were there before. */
const findTyped = <T extends object>(values: Partial<T>, initial: T) =>
  Object.entries(values).filter(
    ([name, value]) => JSON.stringify(value) !== JSON.stringify(initial[name as keyof T]),
  );

/** Empty if the text is not that of a form. */
function readTyped<T>({ text }: Draft): Partial<T> {
  try {
    const typed = JSON.parse(text);
    return typeof typed === 'object' && typed !== null && !Array.isArray(typed) ? typed : {};
  } catch {
    return {};
  }
}

/** Whether a form is open: at first, if the user has typed something into it before. */
export function useFormOpen(formId: string) {
  const { did } = usePage().signer;
  return useState(() => Object.keys(readTyped(read(toFormKey(did, formId)))).length > 0);
}

/** The form of an approval or a question, for which the turn of a session waits. */
export const toTurnForm = (sessionId: string, id: string): string => `${TURN}${sessionId}:${id}`;

/** Drops the drafts of forms for which no turn waits any more, since the user has decided elsewhere or too late. */
export function useEndedForms({ sessions, hasMore, isLoading, error }: UseSessions): void {
  const { did } = usePage().signer;
  const isCurrent = !isLoading && !error;
  useEffect(() => {
    if (!isCurrent) return;
    const known = new Map(sessions.map((each) => [each.sessionId, each.turnStatus]));
    const mayWait = (sessionId: string) =>
      known.has(sessionId) ? known.get(sessionId) === 'paused' : hasMore;
    const prefix = toFormKey(did, TURN);
    for (const key of listKeys().filter((each) => each.startsWith(prefix))) {
      const [sessionId = ''] = key.slice(prefix.length).split(':');
      if (!mayWait(sessionId)) storeText(key, null);
    }
  }, [did, sessions, hasMore, isCurrent]);
}

/** Takes what was typed while a conversation was started into it. */
export function moveDraft({ latest, change }: DraftState, did: string, sessionId: string): void {
  store(toKey(did, sessionId), latest());
  change(EMPTY);
}

/** Puts a message whose conversation was deleted into the box of a new one. */
export function addToNew(did: string, { parentId: _, ...message }: OutgoingMessage): void {
  const draft = read(toKey(did));
  store(toKey(did), { ...draft, ...mergeDraft(draft, message) });
}

/** Puts a message that was not sent back into the box: as an edit if it was one, otherwise before what is already there. */
export function mergeDraft(draft: Draft, message: OutgoingMessage): Partial<Draft> {
  const { message: text = '', attachments = [], parentId } = message;
  const files = attachments.map(({ filename = '', mimetype = '', ...file }) => ({
    ...file,
    filename,
    mimetype,
  }));
  if (parentId !== undefined) return { text, files, edit: startEdit(draft, parentId) };
  return {
    text: [text, draft.text].filter(Boolean).join('\n\n'),
    files: [...files, ...draft.files],
  };
}

/** Keeps what is in the box until the edit ends. */
export function startEdit({ text, files, edit }: Draft, parentId: string | null): Draft['edit'] {
  return { previous: text, previousFiles: files, ...edit, parentId };
}

/** What is in the box after an edit, or after a message was sent. */
export const endEdit = ({ edit }: Draft): Draft => ({
  text: edit?.previous ?? '',
  files: edit?.previousFiles ?? [],
  edit: undefined,
});

/** Moves focus to the box, after a message was put back into it. */
export const focusBox = (): void =>
  document.querySelector<HTMLTextAreaElement>('.composer textarea')?.focus();
