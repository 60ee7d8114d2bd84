// What plugins share that answer in a chat, or post results there.
export type { EndedQuestion, PendingQuestion, PluginTurn, PluginTurns } from '../turns.js';
export { FILE_SOURCES, type FileReadOptions, type FileSource } from './file-sources.js';
export { Inbox, type InboxRow, type Waiting } from './inbox.js';
export { InboxWorker } from './inbox-worker.js';
export { RESULT_CHATS, ResultAddresses, type ResultChat } from './result-addresses.js';
