package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// removePods stops and removes every pod sandbox of the container runtime at the endpoint given as only argument
// (unix:///path). The runtime then undoes the pods' network itself (CNI DEL), which deleting containers would leave.
func removePods(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: kube remove-pods unix:///path/to/containerd.sock")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	connection, err := grpc.NewClient(args[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := runtime.NewRuntimeServiceClient(connection)
	list, err := client.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	failures := make(chan error)
	for _, sandbox := range list.Items {
		go func() {
			name := sandbox.Metadata.Namespace + "/" + sandbox.Metadata.Name
			if _, err := client.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: sandbox.Id}); err != nil {
				failures <- fmt.Errorf("stop %s: %w", name, err)
				return
			}
			if _, err := client.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: sandbox.Id}); err != nil {
				failures <- fmt.Errorf("remove %s: %w", name, err)
				return
			}
			failures <- nil
		}()
	}
	for range list.Items {
		err = errors.Join(err, <-failures)
	}
	return err
}
