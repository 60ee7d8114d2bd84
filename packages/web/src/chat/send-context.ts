import type { MessageToSend } from '@sibyl/client';
import { createContext } from 'react';

/** Sends a message into the conversation around, for what is shown inside of it. */
export const SendContext = createContext<((message: MessageToSend) => void) | undefined>(undefined);
