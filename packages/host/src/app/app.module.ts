import { type DynamicModule, Module, type Type } from '@nestjs/common';
import { APP_FILTER, APP_GUARD, APP_INTERCEPTOR, APP_PIPE } from '@nestjs/core';
import { PublicRoutes, ValidationPipe } from '@sibyl/plugin-kit/rules';
import { Authenticator } from '../auth/authenticator.js';
import { CallerGuard } from '../auth/caller.guard.js';
import { CallerAllowList } from '../auth/caller-allow-list.js';
import { InvitationReader } from '../auth/invitation.js';
import { OracleIdentity } from '../auth/oracle-identity.js';
import { PresentedDelegations } from '../auth/presented-delegations.js';
import { RateLimits } from '../auth/rate-limits.js';
import { UcanGuard } from '../auth/ucan.guard.js';
import { InvitationsController } from '../callers/invitations.controller.js';
import { DelegationController } from '../delegation/delegation.controller.js';
import { DelegationService } from '../delegation/delegation.service.js';
import { DiscoveryController } from '../health/discovery.controller.js';
import { HealthController } from '../health/health.controller.js';
import { HostFacts } from '../health/host-facts.js';
import { ReadinessChecks } from '../health/readiness-checks.js';
import { HistoryController } from '../messages/history.controller.js';
import { MessagesController } from '../messages/messages.controller.js';
import { ReplySender } from '../messages/reply-sender.js';
import { RunsController } from '../messages/runs.controller.js';
import { MODELS, ModelsController } from '../models/models.controller.js';
import { PLUGINS, PluginsController } from '../plugins/plugins.controller.js';
import { SessionsController } from '../sessions/sessions.controller.js';
import { SessionsService } from '../sessions/sessions.service.js';
import { CallerStore } from '../store/callers/caller-store.js';
import { MessageStore } from '../store/messages/message-store.js';
import { RunStore } from '../store/runs/run-store.js';
import { SessionStore } from '../store/sessions/session-store.js';
import { BodyInterceptor } from '../transport/body.interceptor.js';
import { ErrorFilter } from '../transport/error.filter.js';
import { Turns } from '../turn/turns.js';
import type { HostParts } from './host-parts.js';

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
