import { type DynamicModule, Module, type Type } from '@nestjs/common';
import { APP_FILTER, APP_GUARD, APP_INTERCEPTOR, APP_PIPE } from '@nestjs/core';
import { PublicRoutes, ValidationPipe } from '@sibyl/plugin-kit/host';
import { AccessKeys } from '../auth/access-keys.js';
import { Authenticator, PresentedDelegations } from '../auth/authenticator.js';
import { CallerAllowList, InvitationReader } from '../auth/caller-allow-list.js';
import { DelegationService } from '../auth/delegations.js';
import { Operators } from '../auth/operators.js';
import { OracleIdentity } from '../auth/oracle-identity.js';
import { RateLimits } from '../auth/rate-limits.js';
import { UserRules } from '../auth/user-rules.js';
import { FileService } from '../files/file-service.js';
import {
  ActivityController,
  ApprovalsController,
  QuestionsController,
  RulesController,
} from '../http/approvals.controller.js';
import { DelegationController, KeysController } from '../http/delegations.controller.js';
import {
  DiscoveryController,
  HostFacts,
  MODELS,
  ModelsController,
  PLUGINS,
  PluginsController,
} from '../http/discovery.controller.js';
import { ErrorFilter } from '../http/error-filter.js';
import { FilesController } from '../http/files.controller.js';
import { HealthController, ReadinessChecks } from '../http/health.controller.js';
import { InvitationsController } from '../http/invitations.controller.js';
import { MeController, UsageController } from '../http/me.controller.js';
import {
  FeedbackController,
  HistoryController,
  MessagesController,
} from '../http/messages.controller.js';
import { OperatorController, SharingController } from '../http/operator.controller.js';
import { ReplySender } from '../http/reply-sender.js';
import { BodyInterceptor } from '../http/request-body.js';
import { RunsController } from '../http/runs.controller.js';
import {
  SearchController,
  SessionEvents,
  SessionEventsController,
  SessionsController,
} from '../http/sessions.controller.js';
import {
  CallerGuard,
  LoadGuard,
  OriginGuard,
  OriginPolicy,
  UcanGuard,
} from '../http/ucan-guard.js';
import { OperatorService } from '../operators/operator-service.js';
import { Erasure } from '../own-data/erasure.js';
import { Exports } from '../own-data/exports.js';
import { Imports } from '../own-data/imports.js';
import { AnswerDetailsStore } from '../store/answer-details.js';
import { CallerStore } from '../store/caller-store.js';
import { FileStore } from '../store/file-store.js';
import { MessageStore } from '../store/message-store.js';
import { RunStore } from '../store/runs/run-store.js';
import { SearchStore } from '../store/search/search-store.js';
import { SessionStore } from '../store/session-store.js';
import { UsageStore } from '../store/usage-store.js';
import { Approvals } from '../turns/approvals.js';
import { FeedbackService } from '../turns/feedback.js';
import { PausedTurns } from '../turns/paused-turns.js';
import { SessionsService } from '../turns/sessions.js';
import { Turns } from '../turns/turns.js';
import type { HostDeps } from './build-host.js';

@Module({})
export class AppModule {
  static create(deps: HostDeps, modules: readonly (Type | DynamicModule)[]): DynamicModule {
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
      providers: [...globals(deps), ...values(deps)],
    };
  }
}

const globals = ({ bodyLimits, bodyBudget, ...deps }: HostDeps) => [
  { provide: APP_FILTER, useValue: new ErrorFilter(deps) },
  {
    provide: APP_INTERCEPTOR,
    useValue: new BodyInterceptor(bodyLimits, bodyBudget, deps.rateLimits),
  },
  { provide: APP_PIPE, useClass: ValidationPipe },
  { provide: APP_GUARD, useClass: OriginGuard },
  { provide: APP_GUARD, useClass: LoadGuard },
  { provide: APP_GUARD, useClass: UcanGuard },
  { provide: APP_GUARD, useClass: CallerGuard },
];

/** Objects that were built before Nest, each provided under its class. */
const values = (deps: HostDeps) => [
  { provide: OracleIdentity, useValue: deps.oracle },
  { provide: HostFacts, useValue: deps.facts },
  { provide: PublicRoutes, useValue: deps.publicRoutes },
  { provide: OriginPolicy, useValue: deps.origins },
  { provide: Authenticator, useValue: deps.authenticator },
  { provide: AccessKeys, useValue: deps.accessKeys },
  { provide: DelegationService, useValue: deps.delegations },
  { provide: PresentedDelegations, useValue: deps.presented },
  { provide: CallerAllowList, useValue: deps.allowList },
  { provide: InvitationReader, useValue: new InvitationReader(deps.oracle.signer) },
  { provide: CallerStore, useValue: deps.store.callers },
  { provide: RateLimits, useValue: deps.rateLimits },
  { provide: SessionEvents, useValue: new SessionEvents(deps) },
  { provide: SearchStore, useValue: deps.store.search },
  { provide: SessionStore, useValue: deps.store.sessions },
  { provide: SessionsService, useValue: deps.sessions },
  { provide: MessageStore, useValue: deps.store.messages },
  { provide: AnswerDetailsStore, useValue: deps.store.answerDetails },
  { provide: FeedbackService, useValue: deps.feedback },
  { provide: RunStore, useValue: deps.store.runs },
  { provide: FileStore, useValue: deps.store.files },
  { provide: FileService, useValue: deps.files },
  { provide: Turns, useValue: deps.turns },
  { provide: Approvals, useValue: deps.approvals },
  { provide: PausedTurns, useValue: deps.paused },
  { provide: UserRules, useValue: deps.rules },
  { provide: ReplySender, useValue: deps.replies },
  { provide: Erasure, useValue: deps.erasure },
  { provide: Exports, useValue: deps.exports },
  { provide: Imports, useValue: deps.imports },
  { provide: UsageStore, useValue: deps.store.usage },
  { provide: MODELS, useValue: deps.models },
  { provide: PLUGINS, useValue: deps.plugins.plugins },
  { provide: ReadinessChecks, useValue: deps.readiness },
  { provide: Operators, useValue: deps.operators },
  { provide: OperatorService, useValue: deps.operatorService },
];
