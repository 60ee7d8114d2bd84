// What plugins share that answer in a chat, or post results there.
export type { EndedInterrupt, OpenInterrupt, PluginTurn, PluginTurns } from '../turns.js';
export {
  type ChatCall,
  type ChatFile,
  type FileChat,
  listFileTools,
  sendMedia,
} from './chat-files.js';
export { FILE_SOURCES, type FileReadOptions, type FileSource } from './file-sources.js';
export { Inbox, inboxColumns, type Waiting } from './inbox.js';
export { InboxWorker } from './inbox-worker.js';
export {
  defineResultTable,
  RESULT_CHATS,
  ResultAddresses,
  type ResultChat,
} from './result-addresses.js';
