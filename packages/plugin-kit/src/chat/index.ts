// What plugins share that answer in a chat, or post results there.
export type { EndedQuestion, PendingQuestion, PluginTurn, PluginTurns } from '../turns.js';
export {
  type ChatCall,
  type ChatFile,
  type FileChat,
  listFileTools,
  sendMedia,
} from './chat-files.js';
export { FILE_SOURCES, type FileReadOptions, type FileSource } from './file-sources.js';
export { createInboxTable, Inbox, type InboxRow, type Waiting } from './inbox.js';
export { InboxWorker } from './inbox-worker.js';
export {
  createResultTable,
  RESULT_CHATS,
  ResultAddresses,
  type ResultChat,
  type ResultRow,
} from './result-addresses.js';
