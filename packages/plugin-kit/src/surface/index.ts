// For plugins that serve clients of another protocol.
export { type RouteError, RouteReply, type RouteRequest } from '../routes.js';
export type { OpenInterrupt } from '../turns.js';
export { type AnswerPart, listAnswerRuns, readAnswer, readTurn } from './read-turn.js';
export type {
  CallerAccess,
  CallerSessions,
  CallerTurns,
  ClientMessage,
  ClientTool,
  ClientToolCall,
  EarlierMessage,
  NumberedPart,
  Surface,
  SurfaceFile,
  SurfacePlugin,
  SurfaceRun,
  SurfaceTurn,
  ThreadTurn,
  ToolChoice,
} from './surface.js';
export { findClientToolCall } from './surface.js';
