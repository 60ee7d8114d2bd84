import { type DynamicModule, Module, type Type } from '@nestjs/common';
import { APP_FILTER, APP_GUARD, APP_INTERCEPTOR, APP_PIPE } from '@nestjs/core';
import { ValidationPipe } from '@sibyl/plugin-kit/host';
import { InvitationReader } from '../auth/caller-allow-list.js';
import {
  ActivityController,
  ApprovalsController,
  QuestionsController,
  RulesController,
} from '../http/approvals.controller.js';
import { DelegationController, KeysController } from '../http/delegations.controller.js';
import {
  DiscoveryController,
  MODELS,
  ModelsController,
  PLUGINS,
  PluginsController,
} from '../http/discovery.controller.js';
import { ErrorFilter } from '../http/error-filter.js';
import { FilesController } from '../http/files.controller.js';
import { HealthController } from '../http/health.controller.js';
import { InvitationsController } from '../http/invitations.controller.js';
import { MeController, UsageController } from '../http/me.controller.js';
import {
  FeedbackController,
  HistoryController,
  MessagesController,
} from '../http/messages.controller.js';
import { OperatorController, SharingController } from '../http/operator.controller.js';
import { BodyInterceptor } from '../http/request-body.js';
import { RunsController } from '../http/runs.controller.js';
import {
  SearchController,
  SessionEvents,
  SessionEventsController,
  SessionsController,
} from '../http/sessions.controller.js';
import { CallerGuard, LoadGuard, OriginGuard, UcanGuard } from '../http/ucan-guard.js';
import type { Services } from './services.js';

@Module({})
export class AppModule {
  static create(services: Services, modules: readonly (Type | DynamicModule)[]): DynamicModule {
    return {
      module: AppModule,
      imports: [...modules],
      controllers: [
        HealthController,
        DiscoveryController,
        SessionEventsController,
        SessionsController,
        SearchController,
        DelegationController,
        KeysController,
        InvitationsController,
        MessagesController,
        FeedbackController,
        HistoryController,
        RunsController,
        MeController,
        UsageController,
        FilesController,
        ModelsController,
        PluginsController,
        ApprovalsController,
        QuestionsController,
        ActivityController,
        RulesController,
        OperatorController,
        SharingController,
      ],
      providers: [...listGlobals(services), ...listProviders(services)],
    };
  }
}

const listGlobals = (services: Services) => [
  { provide: APP_FILTER, useValue: new ErrorFilter(services) },
  {
    provide: APP_INTERCEPTOR,
    useValue: new BodyInterceptor(services.config, services.bodyBudget, services.rateLimits),
  },
  { provide: APP_PIPE, useClass: ValidationPipe },
  { provide: APP_GUARD, useClass: OriginGuard },
  { provide: APP_GUARD, useClass: LoadGuard },
  { provide: APP_GUARD, useClass: UcanGuard },
  { provide: APP_GUARD, useClass: CallerGuard },
];

/** What controllers and guards receive: objects that were built before Nest, each provided under its class. */
const listProviders = ({ store, ...services }: Services) => [
  { provide: MODELS, useValue: services.models },
  { provide: PLUGINS, useValue: services.plugins },
  ...[
    services.oracle,
    services.facts,
    services.readiness,
    services.publicRoutes,
    services.origins,
    services.rateLimits,
    services.authenticator,
    services.presented,
    services.allowList,
    services.accessKeys,
    services.delegations,
    services.rules,
    services.sessions,
    services.turns,
    services.approvals,
    services.paused,
    services.feedback,
    services.replies,
    services.files,
    services.exports,
    services.imports,
    services.erasure,
    services.operators,
    services.operatorService,
    new InvitationReader(services.oracle.signer),
    new SessionEvents(services),
    store.sessions,
    store.messages,
    store.answerDetails,
    store.runs,
    store.search,
    store.files,
    store.usage,
    store.callers,
  ].map((value) => ({ provide: value.constructor, useValue: value })),
];
