import type { Attachment } from '@sibyl/client';
import { useCallback, useEffect, useRef, useState } from 'react';
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
const PREFIX = 'sibyl-draft:';
const MAX_DRAFTS = 100;

const toKey = (did: string, sessionId = 'new') => `${PREFIX}${did}:${sessionId}`;

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

/** Drops the drafts of conversations, except for the last hundred that were changed. */
function pruneDrafts(): void {
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
  if (keys.length <= MAX_DRAFTS) return;
  const drafts = keys.map((key) => ({ key, at: read(key).at ?? 0 }));
  const oldest = drafts.sort((a, b) => a.at - b.at).slice(0, -MAX_DRAFTS);
  for (const { key } of oldest) localStorage.removeItem(key);
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
  const [draft, setDraft] = useState(() => read(key));
  const latest = useRef(draft);
  const change = useCallback(
    (changed: Partial<Draft>) => {
      latest.current = { ...latest.current, ...changed };
      store(key, latest.current);
      setDraft(latest.current);
    },
    [key],
  );
  useEffect(() => pruneDrafts(), []);
  useEffect(() => {
    const { current: initial } = latest;
    const keep = () => {
      // Another tab has sent its message, but not what was typed here.
      const isGone = readText(key) === null;
      if (isGone && latest.current !== initial) store(key, latest.current);
    };
    window.addEventListener('pagehide', keep);
    return () => {
      window.removeEventListener('pagehide', keep);
      keep();
    };
  }, [key]);
  return { draft, change, latest: () => latest.current };
}

/** What the user has typed into a form and not sent, by field; it survives a reload. */
export function useFormDraft(did: string, formId: string) {
  const { draft, change } = useDraft(did, formId);
  const texts: Readonly<Record<string, string>> = draft.text ? JSON.parse(draft.text) : {};
  return {
    texts,
    change: (typed: typeof texts) =>
      change({ text: Object.keys(typed).length > 0 ? JSON.stringify(typed) : '' }),
  };
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
