import { type DynamicModule, Module, type Type } from '@nestjs/common';
import { APP_FILTER, APP_GUARD, APP_INTERCEPTOR, APP_PIPE } from '@nestjs/core';
import { PublicRoutes, ValidationPipe } from '@sibyl/plugin-kit/rules';
import { Authenticator } from '../auth/authenticator.js';
import { CallerAllowList, InvitationReader } from '../auth/caller-allow-list.js';
import { DelegationService } from '../auth/delegations.js';
import { OracleIdentity } from '../auth/oracle-identity.js';
import { PresentedDelegations } from '../auth/presented-delegations.js';
import { RateLimits } from '../auth/rate-limits.js';
import { DelegationController } from '../http/delegations.controller.js';
import {
  DiscoveryController,
  HostFacts,
  MODELS,
  ModelsController,
  PLUGINS,
  PluginsController,
} from '../http/discovery.controller.js';
import { ErrorFilter } from '../http/error-filter.js';
import { HealthController } from '../http/health.controller.js';
import { InvitationsController } from '../http/invitations.controller.js';
import { HistoryController, MessagesController } from '../http/messages.controller.js';
import { ReadinessChecks } from '../http/readiness.js';
import { ReplySender } from '../http/replies.js';
import { BodyInterceptor } from '../http/request-body.js';
import { RunsController } from '../http/runs.controller.js';
import { SessionsController } from '../http/sessions.controller.js';
import { CallerGuard, UcanGuard } from '../http/ucan-guard.js';
import { CallerStore } from '../store/caller-store.js';
import { MessageStore } from '../store/message-store.js';
import { RunStore } from '../store/runs/run-store.js';
import { SessionStore } from '../store/session-store.js';
import { SessionsService } from '../turns/sessions.js';
import { Turns } from '../turns/turns.js';
import type { HostParts } from './build-host.js';

@Module({})
export class AppModule {
  static of(parts: HostParts, modules: readonly (Type | DynamicModule)[]): DynamicModule {
    return {
      module: AppModule,
      imports: [...modules],
      controllers: [
        HealthController,
        DiscoveryController,
        SessionsController,
        DelegationController,
        InvitationsController,
        MessagesController,
        HistoryController,
        RunsController,
        ModelsController,
        PluginsController,
      ],
      providers: [...globals(parts), ...values(parts)],
    };
  }
}

const globals = ({ logger, rateLimits, bodyLimit, bodyBudget }: HostParts) => [
  { provide: APP_FILTER, useValue: new ErrorFilter(logger, rateLimits) },
  { provide: APP_INTERCEPTOR, useValue: new BodyInterceptor(bodyLimit, bodyBudget) },
  { provide: APP_PIPE, useClass: ValidationPipe },
  { provide: APP_GUARD, useClass: UcanGuard },
  { provide: APP_GUARD, useClass: CallerGuard },
];

/** What was built before Nest, under the class each is asked for by. */
const values = (parts: HostParts) => [
  { provide: OracleIdentity, useValue: parts.oracle },
  { provide: HostFacts, useValue: parts.facts },
  { provide: PublicRoutes, useValue: parts.publicRoutes },
  { provide: Authenticator, useValue: parts.authenticator },
  { provide: DelegationService, useValue: parts.delegations },
  { provide: PresentedDelegations, useValue: parts.presented },
  { provide: CallerAllowList, useValue: parts.allowList },
  { provide: InvitationReader, useValue: new InvitationReader(parts.oracle.signer) },
  { provide: CallerStore, useValue: parts.store.callers },
  { provide: RateLimits, useValue: parts.rateLimits },
  { provide: SessionStore, useValue: parts.store.sessions },
  { provide: SessionsService, useValue: parts.sessions },
  { provide: MessageStore, useValue: parts.store.messages },
  { provide: RunStore, useValue: parts.store.runs },
  { provide: Turns, useValue: parts.turns },
  { provide: ReplySender, useValue: parts.replies },
  { provide: MODELS, useValue: parts.models },
  { provide: PLUGINS, useValue: parts.plugins.plugins },
  { provide: ReadinessChecks, useValue: parts.readiness },
];
