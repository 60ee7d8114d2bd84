import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type DynamicModule, Module } from '@nestjs/common';
import { definePlugin, type PluginContext } from '@sibyl/plugin-kit';
import { PAGE, type Page, PageController, readPageFiles } from './page.js';

@Module({})
class ChatPageModule {}

const FOLDER = fileURLToPath(new URL('dist', import.meta.resolve('@sibyl/web/package.json')));

function pageOf({ shared, logger }: PluginContext): Page {
  const isBuilt = existsSync(FOLDER);
  if (!isBuilt) logger.warn({}, 'the chat page is not built; build it with "npm run build"');
  const { matrixBaseUrl } = shared;
  return {
    files: isBuilt ? readPageFiles(FOLDER) : new Map(),
    settings: typeof matrixBaseUrl === 'string' ? { matrixBaseUrl } : {},
  };
}

/** Serves the chat page at `/app`. */
export const chatPage = definePlugin({
  name: 'chat-page',
  version: '0.1.0',
  manifest: {
    title: 'Chat page',
    summary: 'A page to talk to the oracle, at /app.',
    whenToUse: ['never by the agent: it is for people'],
    category: 'core',
    visibility: 'silent',
  },
  softDependsOn: ['matrix'],
  getSharedState: () => ({ page: '/app/' }),
  getAuthExcludedRoutes: () => ['/app', '/app/(.*)'],
  getNestModules: (context): DynamicModule[] => [
    {
      module: ChatPageModule,
      controllers: [PageController],
      providers: [{ provide: PAGE, useValue: pageOf(context) }],
    },
  ],
});
