import type { BrowserSigner, MessageToSend, OracleCard } from '@sibyl/client';
import { createContext, use } from 'react';

/** What every part of the page may need to know. */
interface PageValues {
  readonly signer: BrowserSigner;
  readonly card: OracleCard;
  readonly settings: PageSettings;
}

/** What the host tells the page beside what every client can ask. */
export interface PageSettings {
  /** The homeserver to upload files to; without it there are no attachments. */
  readonly matrixBaseUrl?: string;
}

export const PageContext = createContext<PageValues | undefined>(undefined);

export function usePage(): PageValues {
  const facts = use(PageContext);
  if (!facts) throw new Error('usePage outside of the page');
  return facts;
}

/** Sends a message into the conversation around, for what is shown inside of it. */
export const SendContext = createContext<((message: MessageToSend) => void) | undefined>(undefined);
