import type { Attachment } from '@sibyl/client';
import { useCallback, useEffect, useRef, useState } from 'react';
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
      }
    | undefined;
}

const EMPTY: Draft = { text: '', files: [] };
const PREFIX = 'sibyl-draft:';
const MAX_DRAFTS = 100;

function read(key: string): Draft {
  try {
    return { ...EMPTY, ...JSON.parse(localStorage.getItem(key) ?? '{}') };
  } catch {
    return EMPTY;
  }
}

function store(key: string, draft: Draft): void {
  try {
    if (!draft.text && draft.files.length === 0) localStorage.removeItem(key);
    else localStorage.setItem(key, JSON.stringify(draft));
  } catch {
    // The browser's storage is full or disabled: the text lasts as long as the page.
  }
}

/** Drops the drafts of conversations, except for the last hundred. */
function pruneDrafts(): void {
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
  for (const key of keys.sort().slice(0, -MAX_DRAFTS)) localStorage.removeItem(key);
}

export interface DraftState {
  readonly draft: Draft;
  change(change: Partial<Draft>): void;
  /** Newer than `draft` in functions of an earlier render. */
  latest(): Draft;
}

/** The draft of a conversation, or of a new one; it survives a reload. */
export function useDraft(did: string, sessionId: string | undefined): DraftState {
  const key = `${PREFIX}${did}:${sessionId ?? 'new'}`;
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
  return { draft, change, latest: () => latest.current };
}

/** Puts a message back into the box, before what is already there. */
export function mergeDraft(
  { text, files }: Draft,
  message: string,
  attachments: OutgoingMessage['attachments'] = [],
): Partial<Draft> {
  const returned = attachments.map(({ filename = '', mimetype = '', ...file }) => ({
    ...file,
    filename,
    mimetype,
  }));
  return { text: [message, text].filter(Boolean).join('\n\n'), files: [...returned, ...files] };
}

/** Moves focus to the box, after a message was put back into it. */
export const focusBox = (): void =>
  document.querySelector<HTMLTextAreaElement>('.composer textarea')?.focus();
